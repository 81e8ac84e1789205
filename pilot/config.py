"""The typed schema of ``conf/``: every public key with its unit, type and bounds.

The schema validates a composed, resolved configuration (plain dictionaries) and reports *all*
mistakes at once. It knows nothing of Hydra: ``pilot/cli/compose.py`` composes, this file judges.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pilot.errors import ConfigError, Mistake


class _Section(BaseModel):
    """A frozen section; numbers are never guessed from text, unknown keys are mistakes."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


Frac = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Need = Literal["required", "optional"]


class FullRun(_Section):
    """The run that the pilot is the first part of. Steps are optimizer steps."""

    schedule_steps: Count | None = None
    epochs: Positive | None = None
    warmup_steps: CountOrZero | None = None
    warmup_frac: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    schedule: Literal["constant", "linear", "cosine", "wsd"] = "cosine"
    min_learning_rate_frac: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    decay_frac: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    start_step: CountOrZero = 0


class Optim(_Section):
    """The optimizer. Keys beyond these are arguments of ``_target_`` and checked against it."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)

    target: str = Field(alias="_target_")
    learning_rate: Positive
    max_grad_norm: Positive | None = None
    weight_decay: NonNegative = 0.0


class Batch(_Section):
    """The global batch: ``micro_batch_size * grad_accum_steps`` rows per optimizer step."""

    micro_batch_size: Count = 8
    grad_accum_steps: Count = 1
    sequence_length: Annotated[int, Field(ge=2)] | None = None


class EngineConfig(_Section):
    """Who owns the training loop, and on which device it runs."""

    name: Literal["native"] = "native"
    device: str = "auto"


class PilotConfig(_Section):
    """How long the pilot is and what it trains on."""

    min_peak_steps: Annotated[int, Field(ge=1)] = 128
    cooldown_steps: Annotated[int, Field(ge=4)] = 36
    seed: CountOrZero = 0
    data_seed: CountOrZero = 0
    data: Literal["representative", "prefix"] = "representative"
    validation_rows: Annotated[int, Field(ge=2)] | None = 256
    budget_steps: Count | None = None
    budget_secs: Positive | None = None
    checkpoint_every_steps: Count = 32
    max_checkpoint_bytes: Count = 5_000_000_000


class PlainGate(_Section):
    """A gate without a limit of its own."""

    need: Need = "required"


class FiniteGate(_Section):
    """Which scaler skips are allowed under fp16."""

    need: Need = "required"
    max_skipped_frac: Frac = 0.01
    max_skipped_in_a_row: CountOrZero = 4


class EarlyDamageGate(_Section):
    """Smoothed training loss against its value at step 1."""

    need: Need = "optional"
    max_loss_ratio: Annotated[float, Field(gt=1.0)] = 1.5
    smooth_steps: Count = 4
    hold_steps: Count = 3


class MovementGate(_Section):
    """Share of the trainable parameters that may stand still."""

    need: Need = "optional"
    max_still_frac: Frac = 0.01


class ValidationGate(_Section):
    """How much worse than before step 1 the validation after the cool-down may be."""

    need: Need = "required"
    num_se: Positive = 2.0
    max_rise_frac: NonNegative = 0.02


class ProgressGate(_Section):
    """Gain in validation loss against the best stable arm of a lower rate."""

    need: Need = "required"
    min_progress: Frac = 0.6667
    max_gap_frac: NonNegative = 0.10
    num_se: Positive = 2.0


class MemoryGate(_Section):
    """Free memory that should remain at the worst moment."""

    need: Need = "optional"
    min_headroom_frac: Frac = 0.05


class Gates(_Section):
    """The conditions of the verdict; every limit is explained in ``conf/gates``."""

    strict: bool = False
    waive: dict[str, str] = Field(default_factory=dict)
    finite: FiniteGate
    outcome: PlainGate
    labels: PlainGate
    movement: MovementGate
    early_damage: EarlyDamageGate
    validation: ValidationGate
    progress: ProgressGate
    coverage: PlainGate
    memory: MemoryGate
    events: PlainGate
    invariance: PlainGate
    resume: PlainGate


class Checks(_Section):
    """Checks that are left out, by name; what is skipped is listed in the verdict."""

    skip: list[str] = Field(default_factory=list)


class Tracking(_Section):
    """Where the verdict is shown. ``uri`` null: tracking is off."""

    uri: str | None = None
    experiment: str | None = None
    log_text: bool = False


class Launcher(_Section):
    """Where an arm runs."""

    name: Literal["local"] = "local"
    num_threads: Count | None = None
    timeout_secs: Positive | None = None
    max_restarts: CountOrZero = 2


class Config(_Section):
    """The whole configuration. ``recipe`` belongs to the recipe's own module."""

    recipe: dict[str, Any]
    full_run: FullRun
    optim: Optim
    batch: Batch
    precision: Literal["fp32", "bf16", "fp16", "fp64"] = "fp32"
    engine: EngineConfig
    pilot: PilotConfig
    gates: Gates
    checks: Checks
    tracking: Tracking
    launcher: Launcher
    out_dir: Annotated[str, Field(min_length=1)]


def validate(tree: Mapping[str, Any]) -> Config:
    """Check a composed, resolved configuration and return it typed.

    Raises:
        ConfigError: with every mistake: wrong types, values out of bounds, unknown keys,
            contradictions between keys.
    """
    mistakes, config = find_mistakes(tree)
    if mistakes or config is None:
        raise ConfigError(mistakes)
    return config


def find_mistakes(tree: Mapping[str, Any]) -> tuple[list[Mistake], Config | None]:
    """All mistakes of ``tree`` and, when there are none of type or bound, the typed config."""
    try:
        config = Config.model_validate(dict(tree))
    except ValidationError as error:
        known = flat_keys(tree)
        return [mistake_from(item, known) for item in error.errors()], None
    return _contradictions(config), config


def flat_keys(tree: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The dotted keys of all leaves, in order."""
    keys: list[str] = []
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            keys.extend(flat_keys(value, f"{prefix}{key}."))
        else:
            keys.append(f"{prefix}{key}")
    return keys


def nearest(word: str, candidates: Sequence[str]) -> str:
    """The candidate most like ``word``, or an empty string when nothing is near."""
    parent, _, last = word.rpartition(".")
    siblings = {c.rpartition(".")[2]: c for c in candidates if c.rpartition(".")[0] == parent}
    anywhere = {c.rpartition(".")[2]: c for c in candidates}
    for names, cutoff in ((siblings, 0.6), (anywhere, 0.8)):
        found = difflib.get_close_matches(last, list(names), n=1, cutoff=cutoff)
        if found:
            return names[found[0]]
    return ""


def mistake_from(item: Any, known: Sequence[str]) -> Mistake:
    """One mistake from an error of pydantic; ``known`` are the keys to suggest for a wrong one."""
    key = ".".join(str(part) for part in item["loc"])
    kind = str(item["type"])
    if kind in ("unexpected_keyword_argument", "extra_forbidden"):
        near = nearest(key, [k for k in known if k != key])
        remedy = f"did you mean {near!r}?" if near else "remove it; --cfg job lists the keys"
        return Mistake(key=key, value=repr(item["input"]), rule="no such key", remedy=remedy)
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return Mistake(key=key, value="", rule="must be given", remedy=f"add {key}=...")
    rule = str(item["msg"]).removeprefix("Input ").replace("should be", "must be")
    remedy = f"set {key} to a value that fits; conf/README.md explains each key"
    return Mistake(key=key, value=repr(item["input"]), rule=rule, remedy=remedy)


def _contradictions(config: Config) -> list[Mistake]:
    run, rules = config.full_run, []
    if (run.schedule_steps is None) == (run.epochs is None):
        given = f"{run.schedule_steps} and full_run.epochs = {run.epochs}"
        rules.append(
            (
                "full_run.schedule_steps",
                given,
                "exactly one of the two says how long the run is",
                "set one of them and the other to null",
            )
        )
    if run.warmup_steps is not None and run.warmup_frac is not None:
        given = f"{run.warmup_steps} and full_run.warmup_frac = {run.warmup_frac}"
        rules.append(
            (
                "full_run.warmup_steps",
                given,
                "at most one of the two describes the warm-up",
                "set one of them to null",
            )
        )
    steps = run.schedule_steps
    if steps is not None and (run.warmup_steps or 0) > steps:
        rules.append(
            (
                "full_run.warmup_steps",
                str(run.warmup_steps),
                f"must be at most full_run.schedule_steps = {steps}",
                "shorten the warm-up",
            )
        )
    if steps is not None and run.start_step >= steps:
        rules.append(
            (
                "full_run.start_step",
                str(run.start_step),
                f"must be below full_run.schedule_steps = {steps}",
                "start earlier in the schedule",
            )
        )
    gate_names = [name for name in Gates.model_fields if name not in ("strict", "waive")]
    for name in config.gates.waive:
        if name not in gate_names:
            rules.append(
                (
                    f"gates.waive.{name}",
                    config.gates.waive[name],
                    "no such gate",
                    f"gates are: {', '.join(gate_names)}",
                )
            )
    return [Mistake(key=k, value=v, rule=r, remedy=m) for k, v, r, m in rules]


def conf_dir() -> Path:
    """The folder of pilot's own configuration: inside the wheel, or beside the package."""
    here = Path(__file__).resolve().parent
    for folder in (here / "conf", here.parent / "conf"):  # the wheel first: see conf/README.md
        if (folder / "config.yaml").is_file():
            return folder
    raise FileNotFoundError(f"no conf/config.yaml beside {here}: the installation is incomplete")
