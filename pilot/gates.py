"""The typed schema of ``conf/gates``: the conditions of the verdict with their limits.

Each limit is explained, with its source, in ``conf/gates/default.yaml``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A frozen section; numbers are never guessed from text, unknown keys are mistakes."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


Frac = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Need = Literal["required", "optional"]


class PlainGate(Section):
    """A gate without a limit of its own."""

    need: Need = "required"


class OptionalGate(Section):
    """The same, for what not every recipe or version can measure."""

    need: Need = "optional"


class FiniteGate(Section):
    """Which scaler skips are allowed under fp16."""

    need: Need = "required"
    max_skipped_frac: Frac = 0.01
    max_skipped_in_a_row: CountOrZero = 4


class EarlyDamageGate(Section):
    """Smoothed training loss against its value at step 1."""

    need: Need = "optional"
    max_loss_ratio: Annotated[float, Field(gt=1.0)] = 1.5
    smooth_steps: Count = 4
    hold_steps: Count = 3


class MovementGate(Section):
    """Share of the trainable parameters that may stand still."""

    need: Need = "optional"
    max_still_frac: Frac = 0.01


class ValidationGate(Section):
    """How much worse than before step 1 the validation after the cool-down may be."""

    need: Need = "required"
    num_se: Positive = 2.0
    max_rise_frac: NonNegative = 0.02


class ProgressGate(Section):
    """Gain in validation loss against the best stable arm of a lower rate."""

    need: Need = "required"
    min_progress: Frac = 0.6667
    max_gap_frac: NonNegative = 0.05
    min_gain_frac: Frac = 0.005
    num_se: Positive = 2.0


class MemoryGate(Section):
    """Free memory that should remain at the worst moment."""

    need: Need = "optional"
    min_headroom_frac: Frac = 0.05


class Gates(Section):
    """The conditions of the verdict; every limit is explained in ``conf/gates``."""

    strict: bool = False
    waive: dict[str, str] = Field(default_factory=dict)
    finite: FiniteGate
    outcome: PlainGate
    labels: OptionalGate
    movement: MovementGate
    early_damage: EarlyDamageGate
    validation: ValidationGate
    progress: ProgressGate
    coverage: PlainGate
    memory: MemoryGate
    events: PlainGate
    invariance: OptionalGate
    resume: OptionalGate
    schedule: OptionalGate = Field(default_factory=OptionalGate)  # folders of before it are judged
