"""``pilot.PilotCallback``: pilot inside the user's own script, with their own Trainer.

    trainer = Trainer(..., callbacks=[pilot.PilotCallback("records", verdict="pilot_out")])
    trainer.train()

``verdict``: the full run starts only with a GO that was made for exactly this run. ``out_dir``:
pilot's records of it. Nothing of the run is changed: no stop, no other rate, no random number
drawn. The folder is that of a pilot whose baseline is the whole run, so ``python -m pilot diagnose
DIR`` and ``judge DIR`` read it; what only a pilot does (arms, a cool-down) is listed as not
measured. In a Trainer that pilot itself builds and trains, the callback does nothing.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

from pilot.bound import ALLOWABLE
from pilot.engines.hf.bound import require_go
from pilot.engines.hf.recording import Recording
from pilot.errors import UsageError

_FEWEST_ROWS = 8


class PilotCallback(TrainerCallback):  # type: ignore[misc]
    """Refuses a full run without its GO (``verdict``), records it (``out_dir``), or both.

    Args:
        out_dir: a folder of its own for the records, new or of the same run (a resumed one goes on
            in it). A second ``train()`` of one script gets ``out_dir_2``, and so on.
        verdict: the folder of a pilot. ``train()`` raises before its first step unless that holds
            a GO for this run: the Trainer's arguments, model, schedule and data, the code that
            builds it, package versions and number of processes.
        allow: differences that you answer for: ``"code"``, ``"packages"``. They are warned of.
        validation_rows: rows of each evaluation set that are evaluated before the first step, after
            the warm-up and at the end; 0: none. The run's random state is put back.
        name: the name of the run in reports.

    Raises:
        UsageError: neither folder is given, or a value is out of bounds. ``train()`` then raises
            ``FullRunRefused`` (no GO for this run), or ``FolderError`` (a folder cannot be used).
    """

    def __init__(
        self,
        out_dir: str | Path | None = None,
        *,
        verdict: str | Path | None = None,
        allow: Collection[str] = (),
        validation_rows: int = 256,
        name: str = "trainer",
    ) -> None:
        self.out_dir = None if out_dir is None else Path(out_dir)
        self.verdict = None if verdict is None else _pilot_folder(Path(verdict))
        self.allow = (allow,) if isinstance(allow, str) else tuple(allow)
        self.validation_rows, self.name = validation_rows, name
        self._recording: Recording | None = None
        self._newest: Path | None = None
        if wrong := self._mistakes():
            raise UsageError("\n".join(["pilot.PilotCallback:", *(f"  {line}" for line in wrong)]))

    def _mistakes(self) -> list[str]:
        lines = []
        if self.out_dir is None and self.verdict is None:
            lines.append("give out_dir (a folder for records), verdict (a pilot's folder), or both")
        if self.out_dir is not None and self.out_dir.resolve() == Path.cwd():
            lines.append(f"out_dir = {str(self.out_dir)!r} is this directory: name a folder in it")
        rows = self.validation_rows
        if not isinstance(rows, int) or isinstance(rows, bool) or (rows and rows < _FEWEST_ROWS):
            lines.append(f"validation_rows = {rows!r} must be 0, or at least {_FEWEST_ROWS}")
        unknown = [part for part in self.allow if part not in ALLOWABLE]
        if unknown:
            lines.append(f"allow = {unknown!r} must be of {', '.join(map(repr, ALLOWABLE))}")
        if self.allow and self.verdict is None:
            lines.append("allow is about the differences from a verdict: give verdict")
        return lines

    # ---- the Trainer's events

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Refuse a run without its GO; begin to record.

        Raises:
            FullRunRefused, FolderError, UsageError: see the class.
        """
        trainer = _find_trainer()
        self._recording = None
        if self.verdict is not None:
            require_go(trainer, self.verdict, self.allow)
        if self.out_dir is None:
            return
        mine = [c for c in trainer.callback_handler.callbacks if isinstance(c, PilotCallback)]
        if sum(callback.out_dir is not None for callback in mine) > 1:
            raise UsageError(
                "several pilot.PilotCallback record this Trainer\n    remedy: give one out_dir"
            )
        recording = Recording(self._folder(state), self.name, self.validation_rows)
        recording.begin(trainer, state, more["train_dataloader"])
        self._recording, self._newest = recording, recording.root

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The loader begins an epoch."""
        if (recording := self._recording) is not None:
            with recording.kept():
                recording.tap.epoch_begins()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Gradients are there, and the rate."""
        if (recording := self._recording) is not None:
            with recording.kept():
                recording.tap.before_optimizer()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The weights have moved."""
        if (recording := self._recording) is not None:
            with recording.kept():
                recording.optimizer_stepped(state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Validate where the plan says so."""
        if (recording := self._recording) is not None:
            with recording.kept():
                recording.step_ended()

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The last record, what moved, and the completion marker."""
        recording, self._recording = self._recording, None
        if recording is not None:
            best = bool(args.load_best_model_at_end and state.best_model_checkpoint)
            with recording.kept():
                recording.end(best_is_loaded=best)

    def _folder(self, state: Any) -> Path:
        """Where this ``train()`` is recorded: a script's second run does not end in an error."""
        assert self.out_dir is not None
        if self._newest is None:
            return self.out_dir
        if state.global_step:
            return self._newest
        number = 2
        while (found := self.out_dir.with_name(f"{self.out_dir.name}_{number}")).exists():
            number += 1
        warnings.warn(f"pilot: this train() is recorded in {found}", stacklevel=2)
        return found


def _pilot_folder(path: Path) -> Path:
    """The folder; its ``verdict.json`` names it too."""
    return path.parent if path.name == "verdict.json" else path


def _find_trainer() -> Trainer:
    """The Trainer whose loop calls: callbacks are not given it."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), Trainer):
            return frame.f_locals["self"]
        frame = frame.f_back
    raise UsageError("PilotCallback must be called by a Trainer's loop")
