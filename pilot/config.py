"""The typed schema of ``conf/``: every public key with its unit, type and bounds.

The schema validates a composed, resolved configuration (plain dictionaries) and reports *all*
mistakes at once. It knows nothing of Hydra: ``pilot/cli/compose.py`` composes, this file judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from pilot.arms.settings import Arms
from pilot.engines import MAX_WORLD_SIZE
from pilot.errors import ConfigError, Mistake
from pilot.gates import Count, CountOrZero, Gates, NonNegative, Positive, Section
from pilot.mistakes import flat_keys, mistake_from

Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what NumPy's generator takes


class FullRun(Section):
    """The run that the pilot is the first part of. Steps are optimizer steps."""

    schedule_steps: Count | None = None
    epochs: Positive | None = None
    warmup_steps: CountOrZero | None = None
    warmup_frac: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    schedule: Literal["constant", "linear", "cosine", "wsd", "trainer"] = "cosine"
    min_learning_rate_frac: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    decay_frac: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    start_step: CountOrZero | None = None


class Optim(Section):
    """The optimizer. Keys beyond these are arguments of ``_target_`` and checked against it.

    Without a class (null) the recipe builds it: all keys but ``_target_`` are passed on to it.
    """

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)

    target: str | None = Field(alias="_target_")
    learning_rate: Positive
    max_grad_norm: Positive | None = None
    weight_decay: NonNegative = 0.0


class Batch(Section):
    """What one process trains per optimizer step: ``micro_batch_size * grad_accum_steps`` rows."""

    micro_batch_size: Annotated[int, Field(ge=1, le=2**20)] = 8
    grad_accum_steps: Annotated[int, Field(ge=1, le=2**20)] = 1
    sequence_length: Annotated[int, Field(ge=2)] | None = None


class EngineConfig(Section):
    """Who owns the training loop, and on which device it runs.

    ``answers``: what the user's Trainer said about itself; pilot writes it, nobody sets it.
    """

    name: Literal["native", "transformers"] = "native"
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    answers: dict[str, Any] | None = None


class PilotConfig(Section):
    """How long the pilot is and what it trains on."""

    min_peak_steps: Annotated[int, Field(ge=1)] = 128
    cooldown_steps: Annotated[int, Field(ge=4)] = 36
    max_extension_steps: Annotated[int, Field(ge=0)] = 96
    seed: Seed = 0
    data_seed: Seed = 0
    data: Literal["representative", "prefix"] = "representative"
    validation_rows: Annotated[int, Field(ge=8)] | None = 256
    budget_steps: Count | None = None
    budget_secs: Positive | None = None
    checkpoint_every_steps: Count = 32
    max_checkpoint_bytes: Count = 5_000_000_000


class Checks(Section):
    """Checks that are left out, by name; what is skipped is listed in the verdict."""

    skip: list[str] = Field(default_factory=list)


class Tracking(Section):
    """Where the verdict is shown. ``uri`` null: tracking is off."""

    uri: str | None = None
    experiment: str | None = None
    log_text: bool = False


class Launcher(Section):
    """Where an arm runs."""

    name: Literal["local"] = "local"
    max_parallel: Count | None = None
    num_threads: Count | None = None
    timeout_secs: Positive | None = None
    max_restarts: CountOrZero = 2
    num_processes: Annotated[int, Field(ge=1, le=256)] = 1


class Config(Section):
    """The whole configuration. ``recipe`` belongs to the recipe's own module."""

    recipe: dict[str, Any]
    full_run: FullRun
    optim: Optim
    batch: Batch
    precision: Literal["fp32", "bf16", "fp16", "fp64"] = "fp32"
    engine: EngineConfig
    pilot: PilotConfig
    arms: Arms
    gates: Gates
    checks: Checks
    tracking: Tracking
    launcher: Launcher
    out_dir: Annotated[str, Field(min_length=1)]

    @property
    def rows_per_step(self) -> int:
        """Rows per optimizer step, of all processes."""
        batch = self.batch
        return batch.micro_batch_size * batch.grad_accum_steps * self.launcher.num_processes


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


def _contradictions(config: Config) -> list[Mistake]:
    run, steps = config.full_run, config.full_run.schedule_steps
    both_lengths = f"{steps} and full_run.epochs = {run.epochs}"
    both_warmups = f"{run.warmup_steps} and full_run.warmup_frac = {run.warmup_frac}"
    rules = (
        (
            (steps is None) == (run.epochs is None),
            ("full_run.schedule_steps", both_lengths),
            "exactly one of the two says how long the run is",
            "set one of them and the other to null",
        ),
        (
            run.warmup_steps is not None and run.warmup_frac is not None,
            ("full_run.warmup_steps", both_warmups),
            "at most one of the two describes the warm-up",
            "set one of them to null",
        ),
        (
            steps is not None and (run.warmup_steps or 0) > steps,
            ("full_run.warmup_steps", str(run.warmup_steps)),
            f"must be at most full_run.schedule_steps = {steps}",
            "shorten the warm-up",
        ),
        (
            steps is not None and (run.start_step or 0) >= steps,
            ("full_run.start_step", str(run.start_step)),
            f"must be below full_run.schedule_steps = {steps}",
            "start earlier in the schedule",
        ),
    )
    wrong = [
        Mistake(key=key, value=value, rule=rule, remedy=remedy)
        for broken, (key, value), rule, remedy in rules
        if broken
    ]
    found = [*wrong, *_engine_mistakes(config), *_process_mistakes(config)]
    return [*found, *_unknown_waivers(config)]


def _engine_mistakes(config: Config) -> list[Mistake]:
    """``engine`` and ``recipe.trainer`` belong together."""
    engine, target = config.engine.name, config.recipe.get("trainer")
    if (engine == "transformers") == bool(target):
        return []
    rule = "names the callable that builds the Trainer of engine=transformers, and of no other"
    remedy = (
        "add recipe.trainer: my_module:build_trainer, or path/to/file.py:build_trainer"
        if not target
        else "add engine=transformers, or drop recipe.trainer"
    )
    return [Mistake(key="recipe.trainer", value=str(target or ""), rule=rule, remedy=remedy)]


def _process_mistakes(config: Config) -> list[Mistake]:
    most, num = MAX_WORLD_SIZE[config.engine.name], config.launcher.num_processes
    if most is None or num <= most:
        return []
    rule = f"engine={config.engine.name} trains in {most} process, no more"
    remedy = "set launcher.num_processes=1, or pilot a Trainer with engine=transformers"
    return [Mistake(key="launcher.num_processes", value=str(num), rule=rule, remedy=remedy)]


def _unknown_waivers(config: Config) -> list[Mistake]:
    gates = [name for name in Gates.model_fields if name not in ("strict", "waive")]
    remedy = f"gates are: {', '.join(gates)}"
    return [
        Mistake(key=f"gates.waive.{name}", value=reason, rule="no such gate", remedy=remedy)
        for name, reason in config.gates.waive.items()
        if name not in gates
    ]


def conf_dir() -> Path:
    """The folder of pilot's own configuration: inside the wheel, or beside the package."""
    here = Path(__file__).resolve().parent
    for folder in (here / "conf", here.parent / "conf"):  # the wheel first: see conf/README.md
        if (folder / "config.yaml").is_file():
            return folder
    raise FileNotFoundError(f"no conf/config.yaml beside {here}: the installation is incomplete")
