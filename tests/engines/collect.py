"""An observer for tests of any engine."""

from __future__ import annotations

from pilot.engines.base import Observer
from pilot.records import Resource, StepRecord, ValidationRecord


class Collect(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []
        self.validations: list[ValidationRecord] = []

    def on_step(self, record: StepRecord, resource: Resource) -> None:
        self.steps.append(record)

    def on_validation(self, record: ValidationRecord, resource: Resource) -> None:
        self.validations.append(record)
