"""What the steps of an arm saw of the data, beside what the full run plans: plain tables.

Row ids come with every step record, lengths and sources from the row table. Shares are of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pilot.data.known import is_stream
from pilot.plan import Plan
from pilot.view import ArmView, PilotView, RowTable

_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def coverage_table(view: PilotView, arm: ArmView) -> dict[str, Any]:
    """Sources, lengths, extremes, segments and validations, planned and seen.

    ``seen`` counts draws of the arm's own steps (the cool-down branch is not part of them); a row
    drawn twice counts twice in shares and once in ``num_rows``. Ids that are not in the row table
    are counted in ``num_unknown_rows`` and left out. Empty input gives zeros and nulls. Of a stream
    only what was drawn is known: what is planned is null.
    """
    if is_stream(view.survey):
        return _of_stream(view, arm)
    drawn = np.array([row for record in arm.steps for row in record.row_ids], dtype=np.int64)
    known = drawn[(drawn >= 0) & (drawn < len(view.rows.num_tokens))]
    return {
        "data": (view.config.get("pilot") or {}).get("data", "representative"),
        "num_rows_drawn": len(drawn),
        "num_rows_seen": len(np.unique(known)),
        "num_rows": len(view.rows.num_tokens),
        "num_unknown_rows": len(drawn) - len(known),
        "sources": list(_sources(view.rows, known)),
        "lengths": _lengths(view.rows, known),
        "extremes": _extremes(view.rows, known, arm),
        "segments": list(_segments(view.plan, arm)),
        "validations": list(_validations(view.plan, arm)),
    }


def _of_stream(view: PilotView, arm: ArmView) -> dict[str, Any]:
    """The same table where rows have no ids: what was drawn is counted, nothing is planned."""
    counts: Counter[str] = Counter()
    for record in arm.steps:
        counts.update(record.source_counts)
    num_drawn = len(arm.steps) * view.plan.rows_per_step
    longest = max((record.longest_tokens for record in arm.steps), default=None)
    unknown: dict[str, int | None] = {name: None for name, _ in _QUANTILES}
    return {
        "data": "stream",
        "num_rows_drawn": num_drawn,
        "num_rows_seen": num_drawn,
        "num_rows": None,
        "num_unknown_rows": 0,
        "sources": [
            {
                "source": name,
                "num_rows": None,
                "planned_share": None,
                "seen_share": _share(count, counts.total()),
                "num_rows_drawn": count,
                "num_rows_seen": count,
            }
            for name, count in sorted(counts.items())
        ],
        "lengths": {"planned": unknown, "seen": {**unknown, "max": longest}},
        "extremes": {
            "longest_tokens": None,
            "longest_tokens_seen": longest,
            "longest_seen": None,
            "sources_not_seen": [],
        },
        "segments": list(_segments(view.plan, arm)),
        "validations": list(_validations(view.plan, arm)),
    }


def _sources(rows: RowTable, drawn: npt.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    for code, name in enumerate(rows.source_names):
        members = rows.source == code
        hits = members[drawn]
        yield {
            "source": name,
            "num_rows": int(members.sum()),
            "planned_share": _share(int(members.sum()), len(members)),
            "seen_share": _share(int(hits.sum()), len(drawn)),
            "num_rows_drawn": int(hits.sum()),
            "num_rows_seen": len(np.unique(drawn[hits])),
        }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _lengths(rows: RowTable, drawn: npt.NDArray[np.int64]) -> dict[str, dict[str, int | None]]:
    """Lengths in tokens at quantiles: values that occur, not interpolated ones.

    Rows whose length was not measured (below 0: reading all takes too long) are left out.
    """
    return {"planned": _quantiles(rows.num_tokens), "seen": _quantiles(rows.num_tokens[drawn])}


def _quantiles(lengths: npt.NDArray[np.int64]) -> dict[str, int | None]:
    lengths = lengths[lengths >= 0]
    if not len(lengths):
        return {name: None for name, _ in _QUANTILES}
    return {n: int(np.quantile(lengths, q, method="inverted_cdf")) for n, q in _QUANTILES}


def _extremes(rows: RowTable, drawn: npt.NDArray[np.int64], arm: ArmView) -> dict[str, Any]:
    longest = int(rows.num_tokens.max()) if len(rows.num_tokens) else None
    seen = int(rows.num_tokens[drawn].max()) if len(drawn) else None
    if seen is not None and (rows.num_tokens < 0).any():  # drawn rows may lack a length: the step's
        seen = max(seen, max(record.longest_tokens for record in arm.steps))
    unseen = [
        s["source"] for s in _sources(rows, drawn) if s["num_rows"] and not s["num_rows_seen"]
    ]
    return {
        "longest_tokens": longest,
        "longest_tokens_seen": seen,
        "longest_seen": longest is not None and seen is not None and seen >= longest,
        "sources_not_seen": unseen,
    }


def _segments(plan: Plan, arm: ArmView) -> Iterator[Mapping[str, Any]]:
    branch = plan.segments[-1].name == "cool-down" if plan.segments else False
    trained = {record.step for record in arm.steps}
    cooled = {record.step for record in arm.cooldown}
    for index, segment in enumerate(plan.segments):
        have = cooled if branch and index == len(plan.segments) - 1 else trained
        steps = range(segment.first_step, segment.last_step + 1)
        yield {
            "segment": segment.name,
            "first_step": segment.first_step,
            "last_step": segment.last_step,
            "num_steps": len(steps),
            "num_trained": sum(step in have for step in steps),
        }


def _validations(plan: Plan, arm: ArmView) -> Iterator[Mapping[str, Any]]:
    for at, step in plan.validations.items():
        record = arm.validation(at)
        yield {"at": at, "step": step, "done": record is not None and record.step == step}
