"""A Trainer without a validation set: the held-out rows are evaluated, and not trained on.

Which rows they are is chosen once, by the survey (``pilot/data/held_out.py``); every arm reads the
same ones. A held-out row is collated as in training: the user's evaluation collator is not known.
Where rows are taken out of training, the loader's sampler draws as it would, and they are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pilot.data.held_out import SHARE
from pilot.engines.hf.rows import inner_batch_sampler, untouched
from pilot.engines.validation import pick_rows
from pilot.errors import UsageError


class HeldOutRows:
    """The held-out rows as a validation set, collated by the training loader's collator."""

    def __init__(self, mode: str, row_ids: Sequence[int], loader: Any) -> None:
        self.mode, self.row_ids = mode, tuple(int(row) for row in row_ids)
        self.dataset, self.collate_fn = loader.dataset, loader.collate_fn
        self.members = frozenset(self.row_ids)

    def __len__(self) -> int:
        return len(self.row_ids)

    def examples(self, limit: int | None, data_seed: int) -> Iterator[tuple[int, Any]]:
        """At most ``limit`` rows with their ids in the training set."""
        for place in pick_rows(len(self), limit, data_seed):
            row = self.row_ids[place]
            yield row, self.dataset[row]


def use(trainer: Any, loader: Any, mode: str, row_ids: Sequence[int], max_steps: int) -> None:
    """Give ``trainer`` the held-out rows as its validation set, and take them out of training.

    Args:
        trainer: the Trainer.
        loader: a training loader of it; after a ``share`` was taken out, it is out of this one too.
        mode: ``undrawn`` or ``share``.
        row_ids: the rows.
        max_steps: the steps of the full run, which stay as they are.

    Raises:
        UsageError: they cannot be taken out of the loader.
    """
    held = HeldOutRows(mode, row_ids, loader)
    trainer.pilot_held_out = held
    if mode != SHARE:
        return
    original = trainer.get_train_dataloader

    def without_held_out() -> Any:
        return leave_out(original(), held.members)

    trainer.get_train_dataloader = without_held_out
    trainer.args.max_steps = max_steps
    leave_out(loader, held.members)


def held_out_rows(trainer: Any) -> HeldOutRows | None:
    """The rows that pilot holds out of ``trainer``'s training set, if it does."""
    found = getattr(trainer, "pilot_held_out", None)
    return found if isinstance(found, HeldOutRows) else None


def why_not(loader: Any, num_rows: int) -> str:
    """Why rows cannot be taken out of ``loader``; empty: they can.

    Every row must be drawn exactly once in an epoch by a sampler of row ids.
    """
    sampler = getattr(inner_batch_sampler(loader), "sampler", None)
    if sampler is None:
        return "its loader draws whole batches by a sampler of its own"
    with untouched(loader):
        rows = [int(row) for row in sampler]
    if len(rows) != num_rows or len(set(rows)) != num_rows:
        return f"its loader does not draw each row once in an epoch ({type(sampler).__name__})"
    return ""


def leave_out(loader: Any, held: frozenset[int]) -> Any:
    """``loader`` without the ``held`` rows: its sampler skips them; the object stays in place.

    Raises:
        UsageError: the sampler is of a kind that cannot be changed.
    """
    sampler = getattr(inner_batch_sampler(loader), "sampler", None)
    kind: Any = type(sampler)
    if getattr(kind, "leaves_out", None) == held:
        return loader  # the user's method returns the same loader again

    class Shortened(kind):  # type: ignore[misc]
        leaves_out = held

        def __iter__(self) -> Iterator[int]:
            return (row for row in kind.__iter__(self) if int(row) not in held)

        def __len__(self) -> int:
            return int(kind.__len__(self)) - len(held)

    try:
        sampler.__class__ = Shortened
    except TypeError as error:
        raise UsageError(
            f"the Trainer has no validation set, and rows cannot be taken out of its "
            f"{kind.__name__}: {error}\n    remedy: give the Trainer an eval_dataset"
        ) from error
    return loader


def require_not_drawn(trainer: Any, rows: Sequence[int], step: int) -> None:
    """Refuse to train on a held-out row: the validation would no longer be one.

    Raises:
        UsageError: ``rows`` of ``step`` hold one.
    """
    held = held_out_rows(trainer)
    if held is None or held.members.isdisjoint(rows):
        return
    row = next(row for row in rows if row in held.members)
    raise UsageError(
        f"step {step} draws row {row}, which is held out for validation: the Trainer's loader "
        "draws other rows than it said before training\n"
        "    remedy: give the Trainer an eval_dataset"
    )
