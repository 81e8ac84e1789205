"""Progress bars that show a loss: tqdm (Lightning, NeMo 1, own loops) and Keras."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pilot.readers.fields import column
from pilot.readers.points import LAST, Column, ColumnKey, Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_line import MAX_SHAPES, ZEROS, Line, Reading
from pilot.readers.text_names import NUMBER, add, as_epoch_mean, number
from pilot.series.types import EPOCH, LOSS

_STATE = re.compile(
    r"(?P<before>[^\0]*)\0\s*(?P<at>[\d.]+[kM]?)/(?P<total>[\d.]+[kM]?) \[?(?P<post>.*)"
)
_KERAS = re.compile(r"^\s*(\d+/\d+ )(?:\[[=>.]+\]|[━╸╺]+)(.* - .*)")
_PAIR = re.compile(rf"(?<![\w./])([A-Za-z][\w/.]*(?: (?:loss|norm))?)\s?[:=]\s?({NUMBER})")
_EPOCH = re.compile(r"\bEpoch\s*[:\[]?\s*(\d+)", re.IGNORECASE)
_GLOBAL = re.compile(rf"\bglobal_step=({NUMBER})")
_EPOCH_KEY = ColumnKey(False, EPOCH)
Span = tuple[int, int]
_OTHER_BAR = re.compile(r"\b(?:val|eval|test|sanity|predict)", re.IGNORECASE)
_LINE = re.compile(
    r"\d{1,3}%\|[^|\n]{0,300}\|\s*[\d.]{1,12}[kM]?/[\d.]{1,12}[kM]? \[[^\n]{0,300}?loss[=:]\s?"
    rf"{NUMBER}"
    rf"|\bloss[:= ]\s?{NUMBER}[^|\n]{{0,60}}\d{{1,3}}%\|[^|\n]{{0,300}}\|\s*\d+/\d+ \["
    rf"|^\s*\d+/\d+ (?:\[[=>.]+\]|[━╸╺]+)[^\n]{{0,300}}?\bloss: {NUMBER}",
    re.MULTILINE | re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class _Bar:
    """Where the numbers of a bar stand: the place, its total, and what is shown beside."""

    at: Span
    total: Span
    epoch: Span | None
    global_step: Span | None
    values: tuple[tuple[Column, int, int], ...]


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add one row per state of a bar; the last state of a step counts.

    The step is ``global_step`` where the bar shows it, else the place in the bar; a bar that starts
    again under another epoch, or after it was full, is the next epoch of the same run. Bars of a
    validation are passed over. Between the bars, validations and means of an epoch are read.
    """
    epochs, reading = _Epochs(), Reading()
    known: dict[str, _Bar | None] = {}
    for line in lines:
        text = _without_drawing(line)
        if text is None:
            epochs.see(line)
            if "oss" in line:
                _add_between(points, reading.read(line))
            continue
        if "oss" not in text:
            continue
        shape = text.translate(ZEROS)
        try:
            bar = known[shape]
        except KeyError:
            bar = _locate(points, text)
            if len(known) < MAX_SHAPES:
                known[shape] = bar
        if bar is not None:
            _add_bar(points, text, bar, epochs)


def _without_drawing(line: str) -> str | None:
    """The text before and behind the drawn part of a bar, joined by a NUL; None: no bar.

    A text without block characters is short of shapes and faster to look up.
    """
    begin = line.find("%|")
    if begin >= 0:
        end = line.find("|", begin + 2)
        return (
            None
            if end < 0
            else line[max(0, begin - 300) : begin] + "\0" + line[end + 1 : end + 2300]
        )
    match = _KERAS.match(line)
    return None if match is None else "\0" + match.group(1) + match.group(2)


def _locate(points: Points, text: str) -> _Bar | None:
    match = _STATE.match(text)
    if match is None or _OTHER_BAR.search(match.group("before")):
        return None
    shown_first = match.start("post") + match.group("post").find(", ") + 1
    before_end = match.end("before")
    found = [*_PAIR.finditer(text, shown_first), *_PAIR.finditer(text, 0, before_end)]
    values = [(column(pair.group(1)), pair.span(2)) for pair in found]
    named = [(key, span) for key, span in values if key is not None and key.name != EPOCH]
    if not any(key.name == LOSS and not key.is_validation for key, _ in named):
        return None
    epoch = _EPOCH.search(text, 0, before_end)
    step = _GLOBAL.search(text, match.start("post"))
    return _Bar(
        at=match.span("at"),
        total=match.span("total"),
        epoch=None if epoch is None else epoch.span(1),
        global_step=None if step is None else step.span(1),
        values=tuple((points.column(key), *span) for key, span in named),
    )


def _add_bar(points: Points, text: str, bar: _Bar, epochs: _Epochs) -> None:
    if bar.epoch is not None:
        epochs.named = float(text[slice(*bar.epoch)])
    now = _count(text[bar.at[0] : bar.at[1]])
    epoch = epochs.at(now, _count(text[bar.total[0] : bar.total[1]]))
    shown = None if bar.global_step is None else number(text[slice(*bar.global_step)])
    row = len(points.steps)
    if shown is None:
        points.steps.append(now)
    else:
        points.row(shown)
    for column_, begin, end in bar.values:
        try:
            value = float(text[begin:end])
        except ValueError:
            value = number(text[begin:end]) or 0.0
        column_.rows.append(row)
        column_.values.append(value)
    points.put(_EPOCH_KEY, epoch)


def _count(text: str) -> int:
    return int(text) if text.isdecimal() else int(number(text) or 0.0)


def _add_between(points: Points, said: Line | None) -> None:
    if said is None or said.step is not None or not len(points):
        return
    found = [(as_epoch_mean(key), value) for key, value in said.found]
    add(points, None, found)


@dataclass
class _Epochs:
    """Which epoch a bar belongs to: the one that the text names, else the count of full bars."""

    named: float | None = None
    count: float = 0.0
    last: int = 0
    total: int = 0

    def see(self, text: str) -> None:
        """Look for ``Epoch 3`` in a text."""
        if "poch" in text and (match := _EPOCH.search(text)) is not None:
            self.named = float(match.group(1))

    def at(self, now: int, total: int) -> float:
        """Return the epoch of a bar that stands at ``now`` of ``total``."""
        if now < self.last and self.last >= self.total - 1:
            self.count += 1.0
        self.last, self.total = now, total
        return self.count if self.named is None else self.named


READER = text_reader(
    "progress-bar",
    "progress bars that show a loss: ' 10%|# | 10/100 [00:01<00:09, 9.1it/s, loss=2.31]' "
    "(tqdm, Lightning, Keras)",
    _LINE,
    feed,
    certain=0.6,
    repeats=LAST,
)
