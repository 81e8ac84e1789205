"""A step's record on its way out: one step late, with its time and the rows of all processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from pilot.engines.hf.ranks import capacity_of, num_ranks, received_rows, send_rows
from pilot.engines.hf.rows import Rows
from pilot.memory import peak_memory_bytes
from pilot.probe import Probe
from pilot.probe_record import row_hash
from pilot.records import Resource, StepRecord

Listener = Callable[[StepRecord, Resource], None]


class LateRecords:
    """Hands out what ``probe`` has measured, once it is there.

    Args:
        probe: measures the steps.
        source_of: the source of a row, by its id.
    """

    def __init__(self, probe: Probe, source_of: Callable[[int], str]) -> None:
        self._probe, self._source_of = probe, source_of
        self._late: Resource | None = None
        self._sent: torch.Tensor | None = None  # the rows of all processes, on their way
        self._step_started = time.perf_counter()

    def restart_clock(self) -> None:
        """The seconds until now belong to no step."""
        self._step_started = time.perf_counter()

    def send_rows(self, batches: Sequence[Rows], args: Any, device: torch.device) -> None:
        """Begin to collect the rows of all processes, where there are several.

        Args:
            batches: this process's micro-batches of the step.
            args: the Trainer's arguments.
            device: where what is collected lies.
        """
        if num_ranks() > 1:
            self._sent = send_rows(batches, capacity_of(args), device)

    def step_ended(self, step: int) -> None:
        """Note what ``step`` took; its record is queued in the probe."""
        now = time.perf_counter()
        secs, self._step_started = now - self._step_started, now
        cuda = self._probe.device.type == "cuda"
        peak = peak_memory_bytes(self._probe.device) if cuda else None
        self._late = Resource(kind="step", step=step, secs=secs, peak_memory_bytes=peak)

    def hand_out(self, on_step: Listener) -> None:
        """Give ``on_step`` the record of the last step, if it has not been yet."""
        record = self._probe.collect()
        if record is not None and self._late is not None:
            late, self._late = self._late, None
            record = self._of_all(record)
            if record.num_tokens and late.secs > 0:
                late = Resource(
                    kind=late.kind,
                    step=late.step,
                    secs=late.secs,
                    tokens_per_sec=record.num_tokens / late.secs,
                    peak_memory_bytes=late.peak_memory_bytes,
                )
            on_step(record, late)

    def sources(self, rows: Rows) -> dict[str, int]:
        """How many of ``rows`` are of which source."""
        return dict(sorted(Counter(self._source_of(row) for row in rows).items()))

    def _of_all(self, record: StepRecord) -> StepRecord:
        """The record with the rows of all processes."""
        if self._sent is None:
            return record
        rows, self._sent = received_rows(self._sent), None
        return replace(
            record, row_ids=rows, row_hash=row_hash(rows), source_counts=self.sources(rows)
        )
