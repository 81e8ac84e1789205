"""Writes what happens to an arm's folder as it happens, and stops a run that cannot go on."""

from __future__ import annotations

from collections.abc import Iterable

from pilot import checkpoint
from pilot.engines.base import Observer
from pilot.folder import ArmFolder
from pilot.jsonl import JsonlWriter
from pilot.records import Evidence, Resource, StepRecord, ValidationRecord

# fp16: the scaler starts at 2**16 and halves on every overflow; after 20 in a row it is below 1.
_MAX_SKIPS_IN_A_ROW = 20
RESUMED = "resumed_stream"  # the experiment's name
BEFORE_FIRST_CLIP = "before_first_clip"


class Recorder(Observer):
    """Appends records; a run whose numbers are not finite is asked to stop.

    Args:
        folder: the arm's folder.
        attempt: 1 for the first start, 2 after the first restart, ...
        start_step: the full run's step from which the arm starts.
        pins_first_clip: whether the state before the first clipped step is kept for a fork.
    """

    def __init__(
        self,
        folder: ArmFolder,
        attempt: int,
        *,
        start_step: int = 0,
        pins_first_clip: bool = True,
    ) -> None:
        self.folder, self.attempt = folder, attempt
        self.stop_reason = ""
        self.stop_step: int | None = None
        self.last_step = start_step
        self.newest: StepRecord | None = None
        self._skips = 0
        self._clipped = not pins_first_clip
        self._steps = JsonlWriter(folder.steps(attempt))
        self._validations = JsonlWriter(folder.validations)
        self._evidence = JsonlWriter(folder.evidence)
        self._resources = JsonlWriter(folder.resources)
        self._in_branch = False
        self._expected: dict[int, str] = {}

    def go_on(self, step: int, records: Iterable[StepRecord]) -> None:
        """Go on after ``step``: what came before is in ``records``, here or before the fork.

        Steps behind ``step`` that a killed attempt had done are done again: of a stream it is noted
        whether it gives the same rows.
        """
        self.last_step = step
        for record in records:
            if record.step > step and not record.row_ids:
                self._expected[record.step] = record.row_hash
            if record.step <= step:
                self._skips = self._skips + 1 if record.step_skipped else 0
                clipped = record.clip_coef < 1.0 and not record.step_skipped
                self._clipped = self._clipped or clipped

    def start_cooldown(self) -> None:
        """From here on steps belong to the cool-down branch, not to the baseline's own record."""
        self._steps.close()
        self._steps = JsonlWriter(self.folder.cooldown(self.attempt))
        self._in_branch = True

    def start_extension(self) -> None:
        """From here on steps extend the baseline beyond the end of its peak."""
        self._steps.close()
        self._steps = JsonlWriter(self.folder.extension(self.attempt))
        self._in_branch = True

    def on_step(self, record: StepRecord, resource: Resource) -> None:
        """Write the record; notice the first clipped step and numbers that are not finite."""
        self._steps.write(record)
        self._resources.write(resource)
        self.last_step, self.newest = record.step, record
        clipped = record.clip_coef < 1.0 and not record.step_skipped
        if clipped and not self._clipped and not self._in_branch:
            self._pin_before(record.step)
        self._compare_rows(record)
        self._watch(record)

    def on_validation(self, record: ValidationRecord, resource: Resource) -> None:
        """Write the record."""
        self._validations.write(record)
        self._resources.write(resource)

    def evidence(self, evidence: Evidence) -> None:
        """Write what an experiment measured."""
        self._evidence.write(evidence)

    def resource(self, resource: Resource) -> None:
        """Write seconds and bytes."""
        self._resources.write(resource)

    def close(self) -> None:
        """Close all files."""
        for writer in (self._steps, self._validations, self._evidence, self._resources):
            writer.close()

    def _compare_rows(self, record: StepRecord) -> None:
        expected, self._expected = self._expected.get(record.step), {}
        if expected is not None:
            values = {"same_rows": record.row_hash == expected}
            self.evidence(
                Evidence(experiment=RESUMED, scale="full", step=record.step, values=values)
            )

    def _watch(self, record: StepRecord) -> None:
        if record.loss_scale is not None and record.finite_params:
            self._skips = self._skips + 1 if record.step_skipped else 0
            if self._skips > _MAX_SKIPS_IN_A_ROW:
                self._stop(f"{self._skips} steps in a row skipped by the loss scaler", record.step)
            return
        bad = [
            name
            for name, fine in (
                ("loss", record.finite_loss),
                ("gradient", record.finite_grads),
                ("weights", record.finite_params),
            )
            if not fine
        ]
        if bad:
            self._stop(f"{' and '.join(bad)} not finite", record.step)

    def _stop(self, reason: str, step: int) -> None:
        if not self.stop_reason:
            self.stop_reason, self.stop_step = f"{reason} at step {step}", step

    def _pin_before(self, step: int) -> None:
        """Keep the newest state from before the first clipped step: 'clip off' can fork there."""
        self._clipped = True
        older = [c for c in checkpoint.find(self.folder.checkpoints) if c.step < step]
        if older:
            checkpoint.pin(max(older, key=lambda c: c.step), BEFORE_FIRST_CLIP)
