"""A Trainer that begins from the user's own ``checkpoint-N``, by the Trainer's own way of resuming.

``trainer.train(resume_from_checkpoint=...)`` restores weights, optimizer, schedule, loss scale,
random states and the place in the data exactly as the user's own resume does. Its methods are only
watched here, to say what was restored; what an arm changes (the rate, the decay, the seed) is set
again behind the loading, because a restored optimizer brings the old values with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilot.engines import seeds
from pilot.engines.hf.rescale import scale_rates
from pilot.engines.hf.resume_refused import (
    is_equal,
    require_adapter,
    require_resumable,
    require_same_rates,
    require_weights,
)
from pilot.engines.hf.resume_said import (
    Loaded,
    horizon_notes,
    parts_of,
    position_of,
    skipped_batches,
)
from pilot.engines.weight_files import explained
from pilot.restored import Restored
from pilot.user_checkpoint import UserCheckpoint, look

if TYPE_CHECKING:
    from pilot.engines.hf.tap import Tap

# Read from the file and set by the schedule, or no number of the user's.
_NOT_COMPARED = ("params", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable")


class UserResume:
    """The start of one Trainer from one checkpoint.

    Args:
        tap: sits on the Trainer.
        path: the ``checkpoint-N`` folder.
        step: the step after which the run goes on.
        wanted: the training arguments that this arm sets (``learning_rate``, ``weight_decay``,
            ``seed``).
        own: the user's values of arguments that were set over.

    Raises:
        ConfigError: the folder is none that this Trainer can resume from.
    """

    def __init__(
        self, tap: Tap, path: Path, step: int, wanted: Mapping[str, Any], own: Mapping[str, Any]
    ) -> None:
        self._tap, self._trainer = tap, tap.trainer
        self._wanted, self._own = wanted, own
        self.checkpoint: UserCheckpoint = look(path)
        require_resumable(self._trainer, tap.model, self.checkpoint, step)
        self.restored: Restored | None = None
        self._notes: list[str] = []
        self._was_read = self._random_was_read = False

    @property
    def folder(self) -> str:
        """What ``train(resume_from_checkpoint=...)`` is given."""
        return str(self.checkpoint.path)

    def load_weights(self) -> None:
        """Put the weights in place before the loop does: what starts is what is compared with.

        Raises:
            ConfigError: they do not fit, or cannot be read without running code.
        """
        state = seeds.random_state()
        self._watch("_issue_warnings_after_load", self._weights_loaded)
        with explained(self.checkpoint.path, "the weights"):
            self._trainer._load_from_checkpoint(self.folder)
        if self.checkpoint.is_adapter:
            require_adapter(self._tap.model, self.checkpoint)
        self._tap.probe.load_state_dict(self._tap.probe.state_dict())  # the weights have moved
        seeds.set_random_state(state)

    def watch_loading(self) -> None:
        """Note what the Trainer loads, and set what the arm changes behind it."""
        self._watch("_load_optimizer_and_scheduler", self._optimizer_loaded, self._note_built)
        self._watch("_load_scaler", _nothing)
        self._watch("_load_rng_state", self._random_loaded)

    def loop_begins(self, loader: Any) -> int:
        """Everything but the random states is loaded; returns the batches that are skipped.

        The random states are put in place too, so that a state saved now is that of the checkpoint.
        """
        if self._was_read and self._factor() == 1.0:
            require_same_rates(self.checkpoint, self._groups())
        self._trainer._load_rng_state(self.folder)
        loaded = Loaded(
            checkpoint=self.checkpoint,
            trainer=self._trainer,
            has_moments=bool(self._tap.optimizer.state),
            was_read=self._was_read,
            random_was_read=self._random_was_read,
            seed=int(self._wanted["seed"]) if self._is_replica() else None,
        )
        notes = [*self._notes, *horizon_notes(loaded)]
        if self._own.get("ignore_data_skip"):
            notes.append("ignore_data_skip is set aside: rows that were trained on are skipped")
        self.restored = Restored(
            source=self.checkpoint.path.name,
            step=loaded.step,
            parts=parts_of(loaded, loader),
            notes=tuple(dict.fromkeys(notes)),
        )
        return skipped_batches(self._trainer.args, loader, loaded.step)

    # ---- what is changed behind the loading

    def _weights_loaded(self, *args: Any, **more: Any) -> None:
        result = args[0] if args else more.get("load_result")
        self._notes += require_weights(self._trainer.model, self.checkpoint, result)

    def _optimizer_loaded(self, *args: Any, **more: Any) -> None:
        scheduler = self._trainer.lr_scheduler
        optimizer = self._tap.optimizer
        self._was_read = bool(optimizer.state) or position_of(scheduler) not in (0, None)
        if not self._was_read:
            return
        own_decay, decay = self._own.get("weight_decay"), self._wanted.get("weight_decay")
        other = []
        for group, built in self._groups():
            if own_decay is not None and not is_equal(own_decay, decay):
                group["weight_decay"] = built["weight_decay"]
            for key in sorted((set(group) & set(built)) - {*_NOT_COMPARED, "weight_decay"}):
                if not is_equal(group[key], built[key]):
                    other.append(f"{key} {group[key]} and not {built[key]}")
        if other:
            text = ", ".join(dict.fromkeys(other))
            self._notes.append(f"the optimizer goes on as it was saved, not as it is built: {text}")
        if (factor := self._factor()) != 1.0:
            scale_rates(optimizer, scheduler, factor)
            self._notes.append(f"rates of the checkpoint x {factor:.6g}: this arm's variable")

    def _factor(self) -> float:
        """The arm's rate over the user's own."""
        own, rate = self._own.get("learning_rate"), self._wanted.get("learning_rate")
        if not own or not rate or is_equal(own, rate):
            return 1.0
        return float(rate) / float(own)

    def _random_loaded(self, *args: Any, **more: Any) -> None:
        path, processes = self.checkpoint.path, int(self._trainer.args.world_size)
        name = f"rng_state_{self._trainer.args.process_index}.pth"
        self._random_was_read = (path / (name if processes > 1 else "rng_state.pth")).is_file()
        if self._is_replica():
            seeds.seed_everything(int(self._wanted["seed"]))

    def _is_replica(self) -> bool:
        own = self._own.get("seed", self._trainer.args.seed)
        return bool(self._wanted.get("seed", own) != own)

    # ---- watching

    def _groups(self) -> list[tuple[dict[str, Any], Mapping[str, Any]]]:
        return list(zip(self._tap.optimizer.param_groups, self._built, strict=False))

    def _note_built(self) -> None:
        """The groups as the script built them: loading replaces them."""
        groups = self._tap.optimizer.param_groups
        self._built: Sequence[Mapping[str, Any]] = [
            {k: v for k, v in group.items() if k != "params"} for group in groups
        ]

    def _watch(
        self, name: str, after: Callable[..., None], before: Callable[[], None] = lambda: None
    ) -> None:
        """Call ``after`` behind the Trainer's own method; what that raises is explained."""
        original = getattr(self._trainer, name, None)
        if original is None:
            return
        path = self.checkpoint.path

        @functools.wraps(original)
        def watched(*args: Any, **more: Any) -> Any:
            before()
            with explained(path, _FILES.get(name, "its weights")):
                result = original(*args, **more)
            after(*args, **more)
            return result

        setattr(self._trainer, name, watched)


_FILES = {
    "_load_optimizer_and_scheduler": "optimizer.pt or scheduler.pt",
    "_load_scaler": "scaler.pt",
    "_load_rng_state": "its random states",
}


def _nothing(*args: Any, **more: Any) -> None:
    """There is nothing to do behind a loading."""
