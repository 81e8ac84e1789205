"""The typed schema of ``conf/arms``: which arms run, what they may cost, when they end early.

Each value is explained in ``conf/arms/default.yaml``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from pilot.gates import Count, CountOrZero, Frac, Positive, Section


def _as_text(value: object) -> object:
    """A number as text: ``[1/3, 3]`` on the command line is a text and a number."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if is_number else value


def _scale(text: str) -> str:
    try:
        value = Fraction(text)
        factor = float(value)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ValueError("must be a number or a fraction such as 1/3") from error
    if factor <= 0 or value == 1:
        raise ValueError("must be above 0 and not 1: 1 is the baseline")
    return text


def _one_change(change: dict[str, Any]) -> dict[str, Any]:
    if len(change) != 1:
        raise ValueError("must be one key and its value: an arm changes exactly one variable")
    return change


Scale = Annotated[str, BeforeValidator(_as_text), AfterValidator(_scale)]
Change = Annotated[dict[str, Any], AfterValidator(_one_change)]


class Arms(Section):
    """The arms around the baseline: each changes exactly one variable."""

    when: Literal["always", "if_not_go"] = "always"
    learning_rate_scales: list[Scale] = Field(default_factory=lambda: ["1/10", "1/3", "3"])
    max_grad_norm: Positive | None = 1.0
    num_replicas: CountOrZero = 2
    add: list[Change] = Field(default_factory=list)
    end_early: bool = True
    error_rate: Annotated[float, Field(gt=0.0, lt=0.5)] = 0.05
    min_effect_frac: Frac = 0.005
    budget_steps: Count | None = None
    budget_secs: Positive | None = None
    budget_device_hours: Positive | None = None
    noise_dir: str | None = None
