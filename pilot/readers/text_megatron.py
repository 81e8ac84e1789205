"""Megatron-LM and its kin: ``iteration N/ M | key: value | key: value |``.

One family, since all print one line a step with fields between bars: Megatron-LM (and SFT or BERT
jobs of it), Megatron-DeepSpeed, GPT-NeoX (``lm_loss``), NeMo 2 (``Training epoch 0, iteration
3/99 | reduced_train_loss: ...``), nanotron (``iteration: 1 / 100 | grad_norm: 1.4M``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pilot.readers.points import ColumnKey, Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import add, find, has, number
from pilot.series.types import GRAD_NORM, LEARNING_RATE, LOSS, LOSS_SCALE, SKIPPED

_STEP = re.compile(r"\biteration:?\s+(\d+)\s*/\s*(\d+)\s*\|")
_RECORD = re.compile(
    r"\biteration:?\s+\d+\s*/\s*\d+\s*\|.{0,2000}?(?:loss|grad.norm|learning rate|lr):? "
)
_VALIDATION = re.compile(
    r"(?P<kind>[\w./-]+)?\s*\b(?:loss|results) at iteration (?P<step>\d+)(?P<where>[^|]*)\|"
    r"(?P<fields>.*)"
)
_ON_SET = re.compile(r"\b(?:on|for)\s+(\S+)")
_VALUE = re.compile(r"[ _]value$")
_HINT = re.compile(
    r"-{10,} arguments -{10,}|> building train, validation, and test datasets|"
    r"NeoXArgs\.configure_distributed_args|using world size: \d+"
)
_SKIPPED = ColumnKey(False, SKIPPED)
_SKIPPED_KEYS = ("number of skipped iterations", "skipped iterations")


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the iterations and the validations of a log.

    Megatron prints the mean loss only where it is above zero, so a loss that is NaN is a line
    *without* the field: the grad norm (if printed) says NaN then. Where no grad norm is printed
    and nothing was skipped, the missing field of a run that had it is taken for a NaN.
    """
    log = _Log(points)
    for line in lines:
        if "iteration" not in line or "|" not in line:
            continue
        for step, pairs in _iterations(line):
            log.add(step, pairs)
        if " at iteration " in line:
            _add_validation(points, line)


@dataclass
class _Log:
    """What earlier lines said that later ones depend on."""

    points: Points
    loss: ColumnKey | None = None
    shown: dict[str, str] = field(default_factory=dict)

    def add(self, step: int, pairs: list[tuple[str, str]]) -> None:
        found = find(pair for pair in pairs if self._is_new(pair))
        known = dict(pairs)
        for key in _SKIPPED_KEYS:
            if key in known and (value := number(known[key])) is not None:
                found.append((_SKIPPED, value))
        losses = [place for place, _ in found if place.name == LOSS and not place.is_validation]
        # A line without the loss may still have an auxiliary one; the better name wins.
        self.loss = min([*losses, *([] if self.loss is None else [self.loss])], default=None)
        if self.loss in losses:
            pass
        elif self.loss is not None and not has(found, GRAD_NORM) and (_SKIPPED, 0.0) in found:
            found.append((self.loss, float("nan")))
            self.points.note("lines without a loss: Megatron prints none that is NaN")
        elif has(found, GRAD_NORM):
            self.points.note("some lines have no loss field (NaN, zero, or a skipped update)")
        if not add(self.points, step, found) and has(found, LEARNING_RATE, LOSS_SCALE):
            self.points.row(step)
            for place, value in found:
                self.points.put(place, value)

    def _is_new(self, pair: tuple[str, str]) -> bool:
        """NeMo repeats the last validation on every line until the next one."""
        key, text = pair
        if not key.startswith("val"):
            return True
        is_new = self.shown.get(key) != text
        self.shown[key] = text
        return is_new


def _iterations(line: str) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """The records of a line: several where processes wrote at the same time."""
    matches = list(_STEP.finditer(line))
    for index, match in enumerate(matches):
        end = matches[index + 1].start() if index + 1 < len(matches) else len(line)
        pairs = _pairs(line[match.end() : end])
        step = next((number(text) for key, text in pairs if key == "global_step"), None)
        yield int(match.group(1) if step is None else step), pairs


def _pairs(fields: str) -> list[tuple[str, str]]:
    pairs = []
    for part in fields.split("|"):
        key, colon, text = part.partition(":")
        if colon:
            pairs.append((key.strip(), text.strip()))
    return pairs


def _add_validation(points: Points, line: str) -> None:
    match = _VALIDATION.search(line)
    if match is None:
        return
    name = _set_name(match.group("kind") or "", match.group("where"))
    losses = find(
        (_VALUE.sub("", key), text)
        for key, text in _pairs(match.group("fields"))
        if "ppl" not in key.lower()
    )
    losses = [pair for pair in losses if pair[0].name == LOSS]
    if losses:
        points.validation(int(match.group("step")), {name: min(losses)[1]})


def _set_name(kind: str, where: str) -> str:
    """``validation loss at iteration 9 on validation set`` is the unnamed set."""
    on = _ON_SET.search(where)
    name = on.group(1).rstrip(":,") if on else kind.removeprefix("validation").strip("-_ ")
    return "" if name.lower() in ("validation", "valid", "val", "results") else name


READER = text_reader(
    "megatron",
    "lines '  iteration 10/ 100 | ... | lm loss: 2.1E+00 | ... |' "
    "(Megatron-LM, Megatron-DeepSpeed, GPT-NeoX, NeMo, nanotron)",
    _RECORD,
    feed,
    hint=_HINT,
    objective="lm",
)
