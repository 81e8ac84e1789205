"""Dictionaries printed among other text, as Hugging Face, TRL, axolotl and fairseq do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pilot.readers import source
from pilot.readers.bar_steps import BarSteps
from pilot.readers.base import Reader
from pilot.readers.points import NO_STEP, Points
from pilot.readers.record import add_record, has_point
from pilot.readers.text_skips import noticed
from pilot.series.types import Trace

NAME = "dicts"
_OBJECT = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}?")
# What follows the number shows that it is whole: a cut line ends in it.
_PAIR = re.compile(
    r"""['"]([^'"{}]{1,200})['"]\s*:\s*(?:(?:np|numpy|torch)\.\w+\(|tensor\()?['"]?"""
    r"""([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?))(?=[\s,}'")\]])""",
    re.IGNORECASE,
)
_TRAIN_LOSS = re.compile(r"""['"](?:train/)?loss['"]\s*:""")
_START = "Running training"
_MAX_AGAIN = 20


def sniff(head: str, path: Path) -> float:
    """By the number of dictionaries with a loss or a gradient norm: sure from three on."""
    num_found = 0
    for text in head.split("\n"):
        if _may_hold(text) and any(_decides(part) for part in _objects(text)):
            num_found += 1
            if num_found == 3:
                return 0.9
    return (0.0, 0.6, 0.75)[num_found]


def _may_hold(text: str) -> bool:
    return "{" in text and ("loss" in text or "grad_norm" in text)


def _objects(text: str) -> list[str]:
    return _OBJECT.findall(text, text.index("{"))


def _decides(part: str) -> bool:
    return has_point(dict(_PAIR.findall(part)))


def read(path: Path) -> Iterator[Trace]:
    """Every dictionary with a loss or a gradient norm, in any line, with text around it."""
    points, bars = Points(path, NAME), BarSteps()
    for text in noticed(points, source.lines(path)):
        if _may_hold(text):
            begin = text.index("{")
            bars.see(text[:begin])
            before = len(points)
            _add_line(points, text)
            if len(points) == before + 1 and _TRAIN_LOSS.search(text, begin):
                bars.mark()
            bars.see(text[text.rfind("}") + 1 :])
        elif _START in text:
            points.start()
        else:
            bars.see(text)
    if (points.steps.count(NO_STEP) == len(points)) and (note := bars.note()):
        points.note(note)
    yield from points.traces()


def _add_line(points: Points, text: str) -> None:
    found = _objects(text)
    if len(found) > _MAX_AGAIN and len(points):
        points.note("a list of all records, printed again in one line, is left out")
        return
    for part in found:
        if "loss" in part or "grad_norm" in part:
            if not part.endswith("}"):
                points.note("a dictionary is cut off: its whole numbers are read")
            add_record(points, dict(_PAIR.findall(part)))


READERS = (
    Reader(
        name=NAME,
        wants="printed dictionaries such as {'loss': 1.23, 'epoch': 0.1} (Hugging Face, axolotl)",
        sniff=sniff,
        read=read,
    ),
)
