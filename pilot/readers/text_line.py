"""What one line of an unknown log says: its step or epoch, and its losses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pilot.readers.fields import column
from pilot.readers.points import ColumnKey
from pilot.readers.text_names import NUMBER, Found, number
from pilot.series.types import EPOCH, GRAD_NORM, LEARNING_RATE, LOSS

_QUALIFIER = (
    "train|training|val|valid|validation|eval|evaluation|test|dev|avg|average|mean|total|"
    "global|lm|ce|cross|grad|gradient|learning|token"
)
_PAIR = re.compile(
    rf"\b((?:(?:{_QUALIFIER})[ -])*[A-Za-z][\w/.]*(?:[ -](?:loss|norm|rate|lr|ce|entropy))*)"
    rf"\s*(?:\([A-Za-z][\w. ]*\)\s*)?(?:[:=]|is|of)?\s*(?:tensor\()?({NUMBER})(?!\w|\.\d|\s?%)",
    re.IGNORECASE,
)
_GLOBAL = re.compile(r"\bglobal[_ -]?steps?\b\s*[:=#\[(]?\s*(\d[\d,]*)(?![\d.])", re.IGNORECASE)
_STEP = re.compile(
    r"\b(?:(?:optim(?:izer)?|train(?:ing)?|update)[_ -])?"
    r"(?:steps?|iter(?:ation)?s?|updates?|batch(?:es)?|it)\b(?:\(train\))?\s*(?:[:=#]|no\.?)?\s*[\[(]?\s*"
    r"(\d+(?:,\d{3})*)(?!\.?\d|\w|%)",
    re.IGNORECASE,
)
# "|   200/ 2983 batches |", as the word language model of PyTorch's examples counts
_OF_TOTAL = re.compile(
    r"(?<![\w./])(\d+)\s*/\s*\d+ (?:steps|iter(?:ation)?s|updates|batches)\b", re.IGNORECASE
)
_TOTAL = re.compile(r"\s*/\s*\d")
# A word of another script before the count and the loss behind it: "次数: 100, Loss: 1.98"
_FOREIGN = re.compile(
    r"[^\W\d_a-zA-Z]\s*(?:[:=]\s*)?(\d+)\s*[,;|]\s*(?:train(?:ing)?[ _]?)?loss\b", re.IGNORECASE
)
# "Validation loss 6312:  0.14", "Train loss 6312 0.15 Grad Norm 0.3": the count stands between
# the name and the value (NVIDIA's Tacotron 2 and its forks).
_LOSS_AT = re.compile(
    r"\b(?:train(?:ing)?|val(?:idation)?|eval|test)[ _]loss (\d+)(?:\s*:)?\s+"
    r"([-+]?\d*\.\d+(?:[eE][-+]?\d+)?|-?nan|-?inf)(?![\w.])",
    re.IGNORECASE,
)
_AT = re.compile(rf"\bloss at (?:step |iter(?:ation)? )?(\d+)\s*[:=]?\s+({NUMBER})", re.IGNORECASE)
# "Epoch: [0][ 10/100]", "Epoch:[1/2](10/100)", "Epoch(train) [1][10/100]", "Train: 0 [ 50/1251",
# "Epoch 3 | 83/332 |"
_EPOCH_STEP = re.compile(
    r"\b(?:epoch|train)(?:\(train\))?:?\s*\[?(\d+)(?:/\d+)?\]?:?\s*[\[(|]\s*(\d+)/\d+",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\bepochs?\b\s*[:=#]?\s*[\[(]?\s*(\d+(?:\.\d+)?)(?![\w%])", re.IGNORECASE)
_HELD_OUT_WORD = re.compile(r"\b(?:val|valid|validation|eval|evaluation|test|dev)\b", re.IGNORECASE)
_LOSS_WORD = re.compile(r"loss\b", re.IGNORECASE)
_TRAIN_WORD = re.compile(r"\btrain", re.IGNORECASE)
_LOSS, _HELD_OUT = ColumnKey(False, LOSS), ColumnKey(True, "")
# A last or best value, not one of this place in the training.
_SUMMARY = re.compile(r"\b(?:best|lowest|min|minimum|final|previous|last)\b", re.IGNORECASE)
_BRACKETED = re.compile(rf"\[([A-Za-z][\w ./-]{{0,40}})\](?=\s*[:=]?\s*{NUMBER})", re.IGNORECASE)
_FULL_WIDTH = str.maketrans("：，；＝（）", ":,;=()")
_STEP_WORDS = ("step", "upda")
ZEROS = str.maketrans("123456789", "000000000")
MAX_SHAPES = 16384


@dataclass(frozen=True, kw_only=True)
class Line:
    """What a line says: where it stands, and its values."""

    step: float | None
    epoch: float | None
    found: Found


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where in a line its numbers stand: (start, end) of step and epoch, and of each value."""

    step: tuple[int, int] | None
    epoch: tuple[int, int] | None
    values: tuple[tuple[ColumnKey, tuple[int, int]], ...]


def read_line(line: str) -> Line | None:
    """Return what a line says; ``None`` where it names no place or no loss."""
    return _read_at(line, locate(line))


def _read_at(line: str, places: Places | None) -> Line | None:
    if places is None:
        return None
    found = [(key, number(line[start:end])) for key, (start, end) in places.values]
    return Line(
        step=None if places.step is None else number(line[slice(*places.step)]),
        epoch=None if places.epoch is None else number(line[slice(*places.epoch)]),
        found=[(key, value) for key, value in found if value is not None],
    )


def locate(line: str) -> Places | None:
    """Return where the step or epoch and the losses of a line stand, by their names.

    A validation loss needs no place: it belongs to the training loss before it.
    """
    line = plain(line)
    at = _AT.search(line)
    if at is not None:
        is_held_out = _HELD_OUT_WORD.search(line, max(0, at.start() - 12), at.start())
        what = _HELD_OUT if is_held_out else _LOSS
        return Places(step=at.span(1), epoch=None, values=((what, at.span(2)),))
    step, epoch = _place(line)
    values = _values(line)
    if step is None and epoch is None:
        at = _LOSS_AT.search(line)
        if at is not None:
            what = _HELD_OUT if _is_held_out(line) else _LOSS
            rest = [(key, span) for key, span in values if key.name in (GRAD_NORM, LEARNING_RATE)]
            return Places(step=at.span(1), epoch=None, values=((what, at.span(2)), *rest))
        is_summary = _SUMMARY.search(line) is not None
        values = [] if is_summary else [pair for pair in values if pair[0].is_validation]
    if not any(key.is_validation or key.name == LOSS for key, _ in values):
        return None
    return Places(step=step, epoch=epoch, values=tuple(values))


def plain(line: str) -> str:
    """Return the line, as long as before, without full-width signs and brackets around names."""
    if not line.isascii():
        line = line.translate(_FULL_WIDTH)
    return _BRACKETED.sub(r" \1 ", line) if "]" in line else line


def _values(line: str) -> list[tuple[ColumnKey, tuple[int, int]]]:
    pairs = ((column(match.group(1)), match.span(2)) for match in _PAIR.finditer(line))
    values = [(key, at) for key, at in pairs if key is not None and key.name != EPOCH]
    if not _is_held_out(line):
        return values
    return [
        (key if key.is_validation else _HELD_OUT, at)
        for key, at in values
        if key.is_validation or key.name == LOSS
    ]


def keys(line: str) -> list[str]:
    """Return the names of all numbers of a line."""
    return [match.group(1) for match in _PAIR.finditer(plain(line))]


def _place(line: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    both = _EPOCH_STEP.search(line)
    if both is not None:
        return both.span(2), both.span(1)
    found = _GLOBAL.search(line) or _step(line) or _OF_TOTAL.search(line)
    epoch = _EPOCH.search(line)
    if found is None and epoch is None and not line.isascii():
        found = _FOREIGN.search(line)
    return None if found is None else found.span(1), None if epoch is None else epoch.span(1)


def _step(line: str) -> re.Match[str] | None:
    """The first count; but a step without a total beats an ``iter 14/15``, a place in an epoch."""
    first = _STEP.search(line)
    if first is None or not _TOTAL.match(line, first.end()):
        return first
    for other in _STEP.finditer(line, first.end()):
        if other.group().lower().startswith(_STEP_WORDS) and not _TOTAL.match(line, other.end()):
            return other
    return first


def _is_held_out(line: str) -> bool:
    """Whether a line such as ``Validation - step 100 - loss 2.3`` has the word before its loss."""
    loss = _LOSS_WORD.search(line)
    end = loss.start() if loss else len(line)
    return bool(_HELD_OUT_WORD.search(line, 0, end)) and not _TRAIN_WORD.search(line, 0, end)


class Reading:
    """Reads lines that mostly repeat one shape: the names are looked for once per shape.

    The shape of a line is the line with every digit replaced by 0; the first ``MAX_SHAPES`` are
    remembered. This makes a line about ten times as cheap.
    """

    def __init__(self) -> None:
        self.shapes: dict[str, Places | None] = {}

    def read(self, line: str) -> Line | None:
        """As :func:`read_line`, but faster where the shape is known."""
        shape = line.translate(ZEROS)
        try:
            return _read_at(line, self.shapes[shape])
        except KeyError:
            places = locate(line)
            if len(self.shapes) < MAX_SHAPES:
                self.shapes[shape] = places
            return _read_at(line, places)
