"""No progress: the loss at the end is the loss at the start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pilot.series.limits import (
    HUGE,
    PROGRESS_ERRORS,
    PROGRESS_FRAC,
    PROGRESS_RECORDS,
    SAME_DIGITS,
    SAME_RECORDS,
)
from pilot.series.rolling import DIFF_TO_SIGMA
from pilot.series.text import num, sigmas, size
from pilot.series.types import HIGH, LOSS, LOW, MEDIUM, NOTE, WARN, Event, Series
from pilot.series.window import is_window

RISING = "rising"  # the hint of a loss that did not stay but rose
_MEDIAN_ERROR = 1.2533
Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]


def no_progress(loss: Series, validations: Mapping[str, Series]) -> Event | None:
    """The loss is the same to the last digit, or flat: a warning; flat in a ``window``: a note.

    Same: the last eight finite records or more are bit-identical, not 0, with at least four
    significant digits: no batch but the very same gives that, so nothing is updated. Only a note
    where the loss had fallen by 10 % before. Flat: ``_flat``. Neither with a validation that
    improves by more than 2 %, nor for losses without a level (the caller's choice). Non-finite
    records are left out. Cost: one sort of the series.
    """
    fine = np.isfinite(loss.values)
    values, steps = np.clip(loss.values[fine], -HUGE, HUGE), loss.steps[fine]
    if not len(values) or any(_improves(series) for series in validations.values()):
        return None
    return _same(values, steps) or _flat(values, steps)


def _same(values: Floats, steps: Steps) -> Event | None:
    last = float(values[-1])
    other = np.flatnonzero(values != last)
    first = int(other[-1]) + 1 if len(other) else 0
    if len(values) - first < SAME_RECORDS or last == 0.0 or _digits(last) < SAME_DIGITS:
        return None
    fell = float(np.median(values[:3])) - last > PROGRESS_FRAC * abs(last)
    return Event(
        kind="no_progress",
        series=LOSS,
        first_step=int(steps[first]),
        last_step=int(steps[-1]),
        severity=NOTE if fell else WARN,
        confidence=HIGH,
        detail=f"the same loss {last:.6g} in the last {len(values) - first} records",
    )


def _digits(value: float) -> int:
    """Significant digits of ``value`` as far as six show them."""
    return len(f"{abs(value):.6g}".partition("e")[0].replace(".", "").strip("0"))


def _flat(values: Floats, steps: Steps) -> Event | None:
    """The median of the last quarter is not below that of the first, nor below the first records.

    d = median of the first quarter - median of the last, e = 1.2533 s sqrt(8 / n) its error, s =
    1.4826 median|difference| / sqrt 2. No progress: d < 2 e, d + 2 e < 10 % of the level (a larger
    fall cannot hide in the noise), and the median of the first three records less than 2 e + s +
    3 % above the last quarter; nor did the loss fall early (``_fell``). Hint ``rising``: -d above
    2 e and 2 % of the level. Needs 30 finite records. A constant series makes no progress. In a
    window of a run nothing is known of what came before: a note, and none if it rises by 10 %.
    """
    n = len(values)
    if n < PROGRESS_RECORDS:
        return None
    first, last = float(np.median(values[: n // 4])), float(np.median(values[-(n // 4) :]))
    noise = DIFF_TO_SIGMA * float(np.median(np.abs(np.diff(values))))
    error = _MEDIAN_ERROR * noise * (8.0 / n) ** 0.5
    level = abs(last)
    fall, margin = first - last, PROGRESS_ERRORS * error
    start = float(np.median(values[:3])) - last
    if level == 0.0 or fall >= max(margin, 0.005 * level) or fall + margin >= PROGRESS_FRAC * level:
        return None
    if start > margin + 0.03 * level + noise or _fell(values, last, noise):
        return None
    window = is_window(int(steps[0]), int(np.median(np.diff(steps))))
    if window and -fall > PROGRESS_FRAC * level:
        return None  # it rises, and is not flat
    where = f"; the log begins at step {steps[0]}" if window else ""
    return Event(
        kind="no_progress",
        series=LOSS,
        first_step=int(steps[0]),
        last_step=int(steps[-1]),
        severity=NOTE if window else WARN,
        confidence=HIGH if n >= 100 else MEDIUM if margin < 0.05 * level else LOW,
        hint=RISING if -fall >= max(margin, 0.02 * level) else "",
        size_sigma=sigmas(-fall, noise, level),
        size_frac=size(-fall / level),
        detail=f"median loss {num(first)} in the first quarter, {num(last)} in the last "
        f"({n} records){where}",
    )


def _fell(values: Floats, last: float, noise: float) -> bool:
    """Whether the loss fell in its first records and is flat since: that was progress.

    The median of the first 4, 8, 16 ... (of at most an eighth of all) is above ``last`` by 3 of its
    errors, 1.2533 s / sqrt count, and 3 %.
    """
    count = 4
    while count <= len(values) // 8:
        error = _MEDIAN_ERROR * noise * count**-0.5
        if float(np.median(values[:count])) - last > max(3.0 * error, 0.03 * abs(last)):
            return True
        count *= 2
    return False


def _improves(series: Series) -> bool:
    values = series.values[np.isfinite(series.values)]
    return len(values) >= 2 and bool(values[-1] < values[0] - 0.02 * abs(values[0]))
