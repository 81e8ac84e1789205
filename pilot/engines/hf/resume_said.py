"""What a Trainer got back of a user's checkpoint, part by part, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilot.engines.hf.rows import length_of
from pilot.restored import DATA, OPTIMIZER, RANDOM, SCALE, SCHEDULE, WEIGHTS, Part
from pilot.user_checkpoint import UserCheckpoint, sharded_optimizer


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What was seen while the Trainer loaded ``checkpoint``.

    ``has_moments``: the optimizer has a state. ``was_read``: the Trainer did load optimizer and
    scheduler. ``seed``: what the random states were seeded with anew (an arm), else None.
    """

    checkpoint: UserCheckpoint
    trainer: Any
    has_moments: bool
    was_read: bool
    random_was_read: bool
    seed: int | None

    @property
    def step(self) -> int:
        """The step after which the Trainer goes on."""
        return int(self.trainer.state.global_step)


def parts_of(loaded: Loaded, loader: Any) -> tuple[Part, ...]:
    """Every part of the run's state."""
    files = loaded.checkpoint.weights
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    weights = f"{files[0].name}{more}" if files else "the adapters' folders"
    parts = [Part(name=WEIGHTS, restored=True, why=weights), _optimizer(loaded), _schedule(loaded)]
    if loaded.trainer.accelerator.scaler is not None:
        there = (loaded.checkpoint.path / "scaler.pt").is_file()
        why = "scaler.pt" if there else "scaler.pt is missing: it begins anew"
        parts.append(Part(name=SCALE, restored=there, why=why))
    return (*parts, _random(loaded), _data(loaded, loader))


def horizon_notes(loaded: Loaded) -> list[str]:
    """Whether the run is as long as it was when it was saved."""
    saved, now = loaded.checkpoint.saved.get("max_steps"), int(loaded.trainer.state.max_steps)
    if not isinstance(saved, int) or saved <= 0 or saved == now:
        return []
    return [
        f"the run was planned for {saved} steps when it was saved, now for {now}: the rates follow "
        "the new horizon, but for the first step's, which the optimizer brings along"
    ]


def position_of(scheduler: Any) -> int | None:
    """The finished steps that a scheduler counts; None: it does not say."""
    found = getattr(scheduler, "last_epoch", None)
    return int(found) if isinstance(found, int) else None


def skipped_batches(args: Any, loader: Any, done: int) -> int:
    """Batches that a Trainer resumed after ``done`` steps draws and drops in its epoch."""
    if not done or args.ignore_data_skip or length_of(loader) == float("inf"):
        return 0
    accumulate = int(args.gradient_accumulation_steps)
    steps_per_epoch = max(1, -(-len(loader) // accumulate))
    return done % steps_per_epoch * accumulate


def _optimizer(loaded: Loaded) -> Part:
    if loaded.has_moments:
        return Part(name=OPTIMIZER, restored=True, why="optimizer.pt")
    if loaded.was_read:
        return Part(name=OPTIMIZER, restored=True, why="optimizer.pt: it keeps no state")
    return Part(name=OPTIMIZER, restored=False, why=f"fresh moments: {_why_not(loaded)}")


def _schedule(loaded: Loaded) -> Part:
    position = position_of(loaded.trainer.lr_scheduler)
    if position == loaded.step:
        return Part(name=SCHEDULE, restored=True, why="scheduler.pt")
    if position is None:
        why = "the scheduler does not say its step"
    elif not loaded.was_read:
        why = f"the rates begin again with that of step 1: {_why_not(loaded)}"
    else:
        why = f"scheduler.pt stands at {position}, the checkpoint at step {loaded.step}"
    return Part(name=SCHEDULE, restored=False, why=why)


def _why_not(loaded: Loaded) -> str:
    path = loaded.checkpoint.path
    names = ("optimizer.pt", "scheduler.pt")
    missing = [name for name in names if not (path / name).is_file()]
    if not missing:
        return "the Trainer did not load it"
    also = "" if len(missing) > 1 else "; a Trainer restores both files or none"
    sharded = sharded_optimizer(loaded.checkpoint)
    verb = "is" if len(missing) == 1 else "are"
    return f"{' and '.join(missing)} {verb} missing{also}{f' ({sharded})' if sharded else ''}"


def _random(loaded: Loaded) -> Part:
    if loaded.seed is not None:
        why = f"seeded anew with {loaded.seed}: this arm's variable"
        return Part(name=RANDOM, restored=False, why=why)
    if loaded.random_was_read:
        return Part(name=RANDOM, restored=True, why="rng_state")
    saved, here = loaded.checkpoint.num_processes, int(loaded.trainer.args.world_size)
    why = "rng_state.pth is missing: dropout draws other numbers"
    if saved != here:
        why = f"they are those of {saved} processes, here is {here}"
    return Part(name=RANDOM, restored=False, why=why)


def _data(loaded: Loaded, loader: Any) -> Part:
    """Whether the place that is skipped to is the place at which the checkpoint was saved."""
    args, step, num = loaded.trainer.args, loaded.step, length_of(loader)
    saved = loaded.checkpoint.saved.get("epoch")
    if num == float("inf") or not isinstance(saved, (int, float)):
        return Part(name=DATA, restored=True, why="rows trained on are drawn and skipped")
    accumulate = int(args.gradient_accumulation_steps)
    per_epoch = max(1, -(-int(num) // accumulate))
    here = step // per_epoch + min(1.0, step % per_epoch * accumulate / num)
    if abs(here - saved) <= 0.5 / per_epoch:
        return Part(name=DATA, restored=True, why=f"epoch {here:.4g}, as it was saved")
    size, then = args.train_batch_size, loaded.checkpoint.saved.get("train_batch_size")
    known = f" (batch size {then} then, {size} now)" if then not in (None, size) else ""
    why = (
        f"saved in epoch {saved:.4g}; after {step} steps the present loader is in epoch {here:.4g}:"
        f" batch size, accumulation, processes or rows have changed{known}"
    )
    return Part(name=DATA, restored=False, why=why)
