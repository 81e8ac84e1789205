"""NaN and infinity in the loss, the grad norm, and a loss scale that collapses."""

from __future__ import annotations

import math
from collections import deque

from pilot.series.book import Book
from pilot.series.leadup import lead_up, sentence
from pilot.series.limits import EVENT_WINDOW, PLAUSIBLE
from pilot.series.point import Point
from pilot.series.skips import Skips
from pilot.series.types import FAIL, GRAD_NORM, HIGH, LOSS, LOSS_SCALE, MEDIUM, Event


class NonFinite:
    """A loss that is NaN or inf fails at once; so does one missing beside a non-finite grad norm.

    The latter twice in a row, or with a loss scale of at most 1 (no scaler at work): a loss that is
    NaN is left out by some trainers, but so is the loss of a step that an fp16 scaler skipped.
    ``nonfinite_first_step`` when no finite loss came before, else ``nonfinite``. Runs with at most
    eight records between them are one event; it has recovered when eight finite losses followed.
    No recovery are losses of exactly 0 without a live gradient (some trainers log NaN so) where the
    loss has a level, nor losses above 10,000 x the largest one before (or 1, if that was 0).
    ``leadup`` says what moved in the eight records before. Non-finite grad norms beside a finite
    loss, and skipped steps: ``skips``. A loss scale that was above 1 and falls below it fails: the
    gradients are too large at any scale. Constant series: nothing. Cost: a few comparisons a step.
    """

    def __init__(self, book: Book, *, levelled: bool = True) -> None:
        self._book = book
        self.levelled = levelled
        self._key: int | None = None
        self._good = self._events = 0
        self._finite = 0
        self._missing = 0
        self._first_missing = 0
        self._scale = 0.0
        self._largest = 0.0
        self._last_scale = math.nan
        self._before: deque[Point] = deque(maxlen=EVENT_WINDOW)
        self._skips = Skips(book)

    def update(self, point: Point) -> None:
        """Judge one record."""
        step, loss, grad, _, scale, skipped = point
        if scale is not None and scale != self._last_scale:
            self._scaler(step, scale)
        grad_bad = grad is not None and not math.isfinite(grad)
        if loss is None:
            if grad_bad:
                self._no_loss(point)
                return
        elif not math.isfinite(loss):
            self._bad(step, step, LOSS, f"loss is {loss}")
            return
        else:
            self._missing = 0
            if self._key is not None:
                self._after(step, loss, grad)
            else:
                self._finite += 1
                self._before.append(point)
                if loss > self._largest:
                    self._largest = loss
        if grad_bad or skipped:
            self._skips.bad(point, zero=loss == 0.0)
        elif grad is not None or skipped is not None:
            self._skips.good(step)

    @property
    def broken(self) -> bool:
        """Whether a loss was not finite (or missing beside a grad norm that was not)."""
        return self._events > 0

    def finish(self) -> None:
        """The series ended."""
        self._skips.finish()

    def _no_loss(self, point: Point) -> None:
        scale = point.loss_scale
        if self._missing == 0:
            self._first_missing = point.step
        self._missing += 1
        if point.skipped or (scale is not None and scale > 1.0):
            self._skips.bad(point, zero=False)
        elif self._missing >= 2 or scale is not None:
            what = f"no loss beside a grad norm of {point.grad_norm}"
            self._bad(self._first_missing, point.step, GRAD_NORM, what)

    def _bad(self, first: int, step: int, series: str, what: str) -> None:
        self._good = 0
        if self._key is not None:
            self._book.change(self._key, last_step=step, recovered_step=None, is_open=True)
            return
        found = lead_up([(p.step, p.loss, p.grad_norm) for p in self._before if p.loss is not None])
        said = sentence(found)
        lead = None if found.grad_norm is None else first - found.grad_norm[0]
        event = Event(
            kind="nonfinite" if self._finite else "nonfinite_first_step",
            series=series,
            first_step=first,
            last_step=step,
            is_open=True,
            severity=FAIL,
            confidence=HIGH if series == LOSS else MEDIUM,
            grad_norm_lead_steps=lead,
            detail=f"{what} from step {first}" + (f"; before, {said}" if said else ""),
        )
        self._key = self._book.open(event)
        self._events += 1

    def _after(self, step: int, loss: float, grad: float | None) -> None:
        """A finite loss while an event is open: is the run back?"""
        assert self._key is not None
        dead = self.levelled and loss == 0.0 and not (grad and math.isfinite(grad))
        if dead or loss > PLAUSIBLE * (self._largest or 1.0):
            self._good = 0
            self._book.change(self._key, recovered_step=None, is_open=True)
            return
        self._good += 1
        if self._good == 1:
            self._book.change(self._key, recovered_step=step)
        if self._good >= EVENT_WINDOW:
            self._book.change(self._key, is_open=False)
            self._key = None
            self._before.clear()

    def _scaler(self, step: int, scale: float) -> None:
        self._last_scale = scale
        if not math.isfinite(scale):
            return
        if scale < 1.0 < self._scale:
            event = Event(
                kind="nonfinite",
                series=LOSS_SCALE,
                first_step=step,
                last_step=step,
                severity=FAIL,
                confidence=HIGH,
                detail=f"the loss scale fell from {self._scale:g} to {scale:g}",
            )
            self._book.open(event)
        self._scale = 0.0 if scale < 1.0 else max(self._scale, scale)
