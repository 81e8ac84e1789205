"""The grad norms of a log too short for their own median: a note on what stands out."""

from __future__ import annotations

from collections.abc import Sequence

from pilot.series.limits import FEW_NORMS, FEW_NORMS_GROWTH, FEW_NORMS_RATIO
from pilot.series.rolling import mid
from pilot.series.text import num, size
from pilot.series.types import GRAD_NORM, LOW, NOTE, Event


def stands_out(records: Sequence[tuple[int, float]]) -> Event | None:
    """Of 6 to 19 (step, finite norm): one above 20 x the median of the others, or growth by 10 x.

    Growth is the median of the last third against that of the first; a single one is not looked
    for among the first two, where large norms are normal. A note, ``grad_norm_alarm`` or
    ``grad_norm_trend``, which stays open: nothing is known of what followed. A constant series, or
    one whose median is 0, passes. Cost: two sorts, once, at the end of the series.
    """
    norms = [norm for _, norm in records]
    if not FEW_NORMS[0] <= len(norms) <= FEW_NORMS[1]:
        return None
    third = len(norms) // 3
    start, end = mid(norms[:third]), mid(norms[-third:])
    if end > FEW_NORMS_GROWTH * start > 0.0:
        what = f"grad norm {num(start)} to {num(end)} within {len(norms)} records"
        return _event("grad_norm_trend", records[third][0], records[-1][0], end / start - 1.0, what)
    place = max(range(2, len(norms)), key=norms.__getitem__)
    usual = mid(norms[:place] + norms[place + 1 :])
    if norms[place] > FEW_NORMS_RATIO * usual > 0.0:
        step, ratio = records[place][0], norms[place] / usual
        what = f"grad norm {num(ratio)} x the median {num(usual)} of the other records"
        return _event("grad_norm_alarm", step, step, ratio, what)
    return None


def _event(kind: str, first: int, last: int, part: float, detail: str) -> Event:
    return Event(
        kind=kind,
        series=GRAD_NORM,
        first_step=first,
        last_step=last,
        is_open=True,
        severity=NOTE,
        confidence=LOW,
        size_frac=size(part),
        detail=detail,
    )
