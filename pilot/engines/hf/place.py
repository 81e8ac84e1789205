"""Where a Trainer is in its data, so that a fresh process draws the same batches and numbers.

A loader fetches one batch ahead of the step that uses it, and a sampler without a generator of its
own draws an epoch's order from torch's global one. A Trainer that resumes restores the random state
only behind its first batches, so a collator that draws (masking, augmentation) or an order that is
drawn (groups of equal length) would come out differently. Three random states are therefore kept:
of the epoch's beginning, from before the batch that was fetched ahead, and of the snapshot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from pilot.engines import seeds
from pilot.engines.hf.rows import BatchList, Rows, inner_batch_sampler, record_batches


class DataPlace:
    """The place in the data of one Trainer.

    Where several processes train together, it is this one's: each draws its own batches.

    Args:
        keeps_random: whether the random states are noted; a snapshot needs them.
    """

    def __init__(self, *, keeps_random: bool) -> None:
        self.num_drawn = 0
        self.first_steps: set[int] = set()  # of an epoch
        self._drawn = BatchList()
        self._keeps_random = keeps_random
        self._skip = 0
        self._begin = 0  # the first batch of the epoch that is trained on
        self._in_workers = False
        self._resumed: Mapping[str, Any] | None = None
        self._random_is_set = False
        self._epoch_random: seeds.RawState | None = None
        self._fetch_random: seeds.RawState | None = None
        self._redrawn: Any = None

    def attach(self, loader: Any, skip_batches: int, resumed: Mapping[str, Any] | None) -> None:
        """Note what ``loader`` draws from now on.

        Args:
            loader: the prepared training loader.
            skip_batches: batches that a resumed Trainer draws and does not train on.
            resumed: the snapshot that it goes on from.
        """
        self._skip = self.num_drawn = self._begin = skip_batches
        self._resumed = resumed
        self._in_workers = bool(getattr(loader, "num_workers", 0))
        sampler = inner_batch_sampler(loader)
        if sampler is not None:
            record_batches(loader.batch_sampler, self._drawn, self._before_fetch)

    def epoch_begins(self, step: int) -> None:
        """The loader is about to be asked for an epoch that begins behind ``step``."""
        self.num_drawn = self._skip
        if not self._skip:  # within an epoch the random states are set after the seed is drawn
            self.first_steps.add(step + 1)
        if self._resumed is not None and step > int(self._resumed["step"]):
            self._resumed, self._begin = None, 0
        if self._redrawn is not None and self._resumed is None:
            self._redrawn.skip_batches, self._redrawn = 0, None
        if self._resumed is not None:
            known = self._resumed.get("epoch_random") if self._skip else self._resumed["random"]
            if known:
                seeds.set_random_state(known)
        if self._keeps_random:
            self._epoch_random = seeds.raw_state()

    def take(self, num_batches: int) -> list[Rows]:
        """The rows of the next batches that were drawn, per process and batch."""
        if self._skip:
            self._drawn.take(self._skip)
            self._skip = 0
        self.num_drawn += num_batches
        return self._drawn.take(num_batches)

    def newest(self) -> Rows:
        """The rows of the batch that was drawn last; empty where none is ahead."""
        return self._drawn[-1] if self._drawn else ()

    def load_random(self) -> None:
        """The Trainer has drawn its first batches, or is about to: the snapshot's random state.

        Where the loader's own draws follow it, it was set between them (``_before_fetch``).
        """
        if self._resumed is not None and not self._random_is_set:
            seeds.set_random_state(self._resumed["random"])

    def state(self) -> dict[str, Any]:
        """What a snapshot keeps of it."""
        kept = {"epoch_random": self._epoch_random, "fetch_random": self._fetch_random}
        plain = {name: raw and seeds.random_state(raw) for name, raw in kept.items()}
        return {"num_drawn": self.num_drawn, **plain}

    @contextlib.contextmanager
    def resuming(self) -> Iterator[None]:
        """While it is open, a resumed Trainer whose workers fetch draws the skipped batches again.

        Each worker has a random state of its own, which is where it is because of all the batches
        that it has made; and which worker makes a batch depends on its number.
        """
        from transformers import trainer as module

        original = getattr(module, "skip_first_batches", None)

        def skip(loader: Any, num_batches: int = 0) -> Any:
            if not (self._in_workers and hasattr(loader, "skip_batches")):
                return original(loader, num_batches)  # type: ignore[misc]
            loader.skip_batches, self._redrawn = num_batches, loader
            return loader

        if original is None:
            yield
            return
        module.skip_first_batches = skip
        try:
            yield
        finally:
            module.skip_first_batches = original

    def _before_fetch(self, index: int) -> None:
        """The ``index``-th batch of row ids of the epoch is drawn; its rows are fetched next."""
        if self._in_workers or not self._keeps_random:
            return
        if self._resumed is not None and self._begin:
            if index == self._begin and self._resumed.get("fetch_random"):
                seeds.set_random_state(self._resumed["fetch_random"])
            elif index == self._begin + 1:
                seeds.set_random_state(self._resumed["random"])
                self._random_is_set = True
        self._fetch_random = seeds.raw_state()
