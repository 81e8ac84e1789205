"""Rows of a log into traces: runs, resumes, repeated steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pilot.readers.choose import choose, rows_of
from pilot.readers.fields import objective
from pilot.readers.merge import Rows, Stream, by_record, by_step, counts, joined_rows
from pilot.readers.points import NO_STEP, ODD_STEPS, Column, ColumnKey, Points
from pilot.readers.runs import EPOCH, RESUME, RUN, Cut, Cuts, Line, find_cuts, interval
from pilot.readers.text_skips import SKIPS, settled
from pilot.series.types import EPOCH as EPOCH_NAME
from pilot.series.types import GRAD_NORM, LEARNING_RATE, LOSS, SKIPPED, Trace

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
EPOCH_UNITS = 1e6  # an epoch as a whole number, where it stands in for the step


def split(points: Points) -> list[Trace]:
    """All traces of a log; empty where no loss, grad norm or validation was found."""
    columns = choose(points)
    deciding = _deciding_rows(columns)
    if not len(deciding):
        return []
    row_steps = np.frombuffer(points.steps, dtype=np.int64)
    num_known = int((row_steps[deciding] != NO_STEP).sum())
    has_steps = 2 * num_known >= len(deciding)
    if has_steps:
        deciding = deciding[row_steps[deciding] != NO_STEP]
        row_steps = _fill(row_steps)
    else:
        row_steps = _epoch_steps(columns, len(row_steps))
        if points.odd_step is not None:
            odd = f"{ODD_STEPS}{points.odd_step:.6g}"
            points.note(f"{odd} are no whole numbers below 2^53: not used")
    streams = [
        Stream(key=k, rows=rows_of(c), steps=row_steps[rows_of(c)], values=np.frombuffer(c.values))
        for k, c in columns.items()
    ]
    line = _line(streams, deciding, row_steps, has_steps)
    found = find_cuts(line)
    if not has_steps and (row_steps == 0).all():
        found.cuts.extend(_cuts_at_starts(points, deciding))
    row_steps = _count_on(row_steps, found, line)
    parts = _apply(streams, row_steps, found, line)
    word = ("epoch" if points.axis == "epochs" else "step") if has_steps else ""
    notes = [[*points.notes, *_notes(found, cuts, word)] for cuts in _cuts_by_run(found)]
    return _traces(points, parts, has_steps, notes)


def _deciding_rows(columns: dict[ColumnKey, Column]) -> Rows:
    """The rows whose order tells runs and resumes: with a loss, unless most have only a norm."""
    by_name = {key.name: rows_of(c) for key, c in columns.items() if not key.is_validation}
    losses = by_name.get(LOSS, np.empty(0, dtype=np.uint32))
    train = joined_rows([losses, by_name.get(GRAD_NORM, losses)])
    if len(train):
        return losses if 2 * len(losses) >= len(train) else train
    validations = [rows_of(column) for key, column in columns.items() if key.is_validation]
    return joined_rows([losses, *validations])


def _fill(row_steps: Ints) -> Ints:
    """Rows without a step get that of the row before; the first ones that of the first with one."""
    known = row_steps != NO_STEP
    last = np.maximum.accumulate(np.where(known, np.arange(len(row_steps)), -1))
    return row_steps[np.where(last < 0, int(np.argmax(known)), last)]


def _epoch_steps(columns: dict[ColumnKey, Column], num_rows: int) -> Ints:
    """The epoch of each row in millionths, or 0 everywhere."""
    steps = np.full(num_rows, NO_STEP, dtype=np.int64)
    for key, column in columns.items():
        if not key.is_validation and key.name == EPOCH_NAME:
            values = np.nan_to_num(np.array(column.values), nan=0.0, posinf=0.0, neginf=0.0)
            steps[rows_of(column)] = np.rint(np.clip(values, -1e9, 1e9) * EPOCH_UNITS)
    return _fill(steps) if (steps != NO_STEP).any() else np.zeros(num_rows, dtype=np.int64)


def _line(streams: Sequence[Stream], deciding: Rows, row_steps: Ints, has_steps: bool) -> Line:
    per_row = {name: np.full(len(row_steps), np.nan) for name in (EPOCH_NAME, LEARNING_RATE)}
    for stream in streams:
        if not stream.key.is_validation and stream.key.name in per_row:
            per_row[stream.key.name][stream.rows] = stream.values
    epochs = per_row[EPOCH_NAME] if has_steps else np.full(len(row_steps), np.nan)
    return Line(
        rows=deciding.astype(np.int64),
        steps=row_steps[deciding],
        epochs=epochs[deciding],
        rates=per_row[LEARNING_RATE][deciding],
    )


def _cuts_at_starts(points: Points, deciding: Rows) -> list[Cut]:
    """Without steps and epochs a new run begins where the text says that a training starts."""
    rows = [
        int(deciding[i]) for i in np.searchsorted(deciding, points.starts) if 0 < i < len(deciding)
    ]
    return [Cut(kind=RUN, row=row, step=0, before=0) for row in dict.fromkeys(rows)]


def _count_on(row_steps: Ints, found: Cuts, line: Line) -> Ints:
    """Steps that start over in each epoch, counted on over the epochs."""
    if not any(cut.kind == EPOCH for cut in found.cuts):
        return row_steps
    row_steps, offset, pace = row_steps.copy(), 0, int(interval(line.steps))
    bounds = [cut.row for cut in found.cuts[1:]] + [len(row_steps)]
    for cut, end in zip(found.cuts, bounds, strict=True):
        if cut.kind == EPOCH:
            offset += cut.before - cut.step + pace
        elif cut.kind == RUN:
            offset = 0
        row_steps[cut.row : end] += offset
    return row_steps


def _apply(
    streams: Sequence[Stream], row_steps: Ints, found: Cuts, line: Line
) -> list[list[Stream]]:
    """The streams of each run, without what a resume replaced."""
    starts = [_first_row(cut, line, row_steps) for cut in found.cuts if cut.kind == RUN]
    resumes = [cut for cut in found.cuts if cut.kind == RESUME]
    bounds = [0, *starts, len(row_steps)]
    parts: list[list[Stream]] = []
    for begin, end in zip(bounds, bounds[1:], strict=False):
        inside = [cut for cut in resumes if begin <= cut.row < end]
        run = [s.between(begin, end, row_steps) for s in streams]
        parts.append([_without_replaced(s, inside, row_steps) for s in run])
    return parts


def _first_row(cut: Cut, line: Line, row_steps: Ints) -> int:
    """The row where a run begins: validations before its first loss belong to it."""
    i = int(np.searchsorted(line.rows, cut.row))
    before = int(line.rows[i - 1]) if i else -1
    between = row_steps[before + 1 : cut.row]
    early = np.flatnonzero((between <= cut.step) & (between < cut.before))
    return before + 1 + int(early[0]) if early.size else cut.row


def _without_replaced(stream: Stream, resumes: Sequence[Cut], row_steps: Ints) -> Stream:
    """Without entries from before a resume at or after its step: the later attempt wins."""
    if not resumes or not len(stream.rows):
        return stream
    rows = np.array([cut.row for cut in resumes])
    steps = row_steps[rows]
    # The lowest step that any later resume goes back to.
    lowest = np.append(np.minimum.accumulate(steps[::-1])[::-1], np.iinfo(np.int64).max)
    later = lowest[np.searchsorted(rows, stream.rows, side="right")]
    return stream.at(stream.steps < later)


def _cuts_by_run(found: Cuts) -> list[list[Cut]]:
    """The cuts within each run, in order."""
    runs: list[list[Cut]] = [[]]
    for cut in found.cuts:
        if cut.kind == RUN:
            runs.append([])
        else:
            runs[-1].append(cut)
    return runs


def _notes(found: Cuts, cuts: Sequence[Cut], word: str) -> list[str]:
    """What is to be said of one run; ``word`` "": the epoch, in millionths, stood in."""
    notes, unit = [], 1.0 if word else EPOCH_UNITS
    word = word or "epoch"
    resumes = [cut for cut in cuts if cut.kind == RESUME]
    if resumes:
        places = ", ".join(
            f"from {word} {c.before / unit:.10g} back to {c.step / unit:.10g}" for c in resumes[:3]
        )
        more = f" and {len(resumes) - 3} more" if len(resumes) > 3 else ""
        notes.append(f"resumed: {places}{more}; the later attempt counts from there on")
    if any(cut.kind == EPOCH for cut in cuts):
        notes.append("the step count starts over in each epoch; counted on")
    if found.several_writers:
        notes.append("several writers (ranks) in one file, a little out of order; sorted by step")
    elif found.num_stragglers:
        notes.append(f"rows out of order: {found.num_stragglers}; sorted by step")
    return notes


def _traces(
    points: Points, parts: Sequence[Sequence[Stream]], has_steps: bool, notes: Sequence[list[str]]
) -> list[Trace]:
    """Parts with points as traces; the source is numbered where there are several."""
    said = zip(parts, notes, strict=True)
    filled = [(part, own) for part, own in said if any(len(s.rows) for s in part if counts(s.key))]
    traces = []
    for number, (part, own) in enumerate(filled, start=1):
        series = by_step(part, points.repeats, own) if has_steps else by_record(part, own)
        if len(filled) > 1:
            own.append(f"run {number} of {len(filled)} in this log")
        train = {key.name: s for key, s in series.items() if not key.is_validation}
        if SKIPS in series and has_steps:
            train[SKIPPED] = settled(series[SKIPS], train.get(LOSS))
        if LOSS not in train and train.keys() & {GRAD_NORM}:
            own.append("there are gradient norms but no loss")
        traces.append(
            Trace(
                source=points.source if len(filled) == 1 else f"{points.source}#{number}",
                format=points.format,
                axis=points.axis if has_steps else "records",
                train=train,
                validations={key.name: s for key, s in series.items() if key.is_validation},
                objective=points.objective or objective(points.keys),
                notes=tuple(own),
            )
        )
    return traces
