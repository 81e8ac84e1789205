"""A validation set for a Trainer without one: rows of its training set that the pilot holds out.

Two ways, in the order of preference; the choice is made once, by the survey, and every arm reads
the same rows (``held_out.npy``). Row ids are those of the user's own training set.

* ``undrawn``: rows that no step of the pilot draws. The run is not changed at all. It needs an
  order that is known before training, and enough rows that are left.
* ``share``: a random tenth of the rows (``MIN_ROWS`` to ``MAX_ROWS`` of them, a fifth at most). The
  loader leaves them out: its sampler draws as it would, and these rows are skipped. The run is that
  of a smaller training set, with the full run's number of steps.

A held-out row is collated as in training, because the user's evaluation collator is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.engines.hf.rows import inner_batch_sampler, untouched
from pilot.engines.validation import pick_rows
from pilot.errors import UsageError

if TYPE_CHECKING:
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

NAME = "held_out"
UNDRAWN, SHARE = "undrawn", "share"
MIN_ROWS, MAX_ROWS = 8, 256  # fewer decide nothing; more make no verdict surer than its limits
ENOUGH_ROWS = 32  # undrawn rows, or as many as the share would be
_SHARE, _LARGEST_SHARE = 0.1, 0.2
_STREAM = 301  # of the random numbers under one data_seed


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which rows are held out, in ascending order, and in which way; or ``refused``: why none."""

    mode: str
    row_ids: tuple[int, ...]
    refused: str = ""


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


def choose(
    num_rows: int, drawn: Ids | None, *, wanted: int | None, data_seed: int, reason: str = ""
) -> Choice:
    """Which of ``num_rows`` rows are held out.

    Args:
        num_rows: rows of the training set.
        drawn: every row that a step of the pilot may draw; None: that is not known.
        wanted: rows that are evaluated at most (``pilot.validation_rows``; None: all there are).
        data_seed: fixes the choice.
        reason: why rows cannot be taken out of the loader; empty: they can.
    """
    most = min(MAX_ROWS, wanted or MAX_ROWS)
    share = min(most, max(MIN_ROWS, int(_SHARE * num_rows)))
    random = np.random.default_rng((data_seed, num_rows, _STREAM))
    if drawn is not None:
        left = np.setdiff1d(np.arange(num_rows, dtype=np.int64), drawn)
        if len(left) >= min(ENOUGH_ROWS, share):
            size = min(len(left), max(ENOUGH_ROWS, wanted or MAX_ROWS))
            return Choice(mode=UNDRAWN, row_ids=_some(random, left, size))
    if share > _LARGEST_SHARE * num_rows:
        return _refuse(
            f"its {num_rows} training rows are too few to hold some out (at least "
            f"{int(MIN_ROWS / _LARGEST_SHARE)} are needed)"
        )
    if reason:
        return _refuse(f"no rows can be held out: {reason}")
    every = np.arange(num_rows, dtype=np.int64)
    return Choice(mode=SHARE, row_ids=_some(random, every, share))


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


def of_a_stream() -> Choice:
    """None: rows of a stream cannot be left out without another stream."""
    return _refuse("its training set is a stream, of which no rows can be held out")


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


def read_rows(path: Path) -> Ids:
    """The rows that the survey chose."""
    found: Ids = np.load(path, allow_pickle=False)
    return found


def _some(random: np.random.Generator, rows: Ids, size: int) -> tuple[int, ...]:
    chosen = rows[random.permutation(len(rows))[:size]]
    return tuple(sorted(int(row) for row in chosen))


def _refuse(why: str) -> Choice:
    return Choice(
        mode="",
        row_ids=(),
        refused=f"the Trainer has no validation set, and {why}; give it an eval_dataset",
    )
