"""One JSON object a line: LLaMA-Factory ``trainer_log.jsonl``, and any other such log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pilot.readers import source
from pilot.readers.base import Reader
from pilot.readers.json_values import loads
from pilot.readers.points import Points
from pilot.readers.record import add_record, has_point
from pilot.series.types import Trace

TRAINER_LOG, JSONL = "trainer_log", "jsonl"
_SNIFF_LINES = 200


def sniff_trainer_log(head: str, path: Path) -> float:
    """Sure with ``current_steps`` and ``total_steps`` in an object at the start of a line."""
    for record in _head_records(head):
        if "current_steps" in record and "total_steps" in record:
            return 0.97
    return 0.0


def sniff_jsonl(head: str, path: Path) -> float:
    """Most lines are objects, and one of them has a loss, a grad norm or a validation loss."""
    texts = [text for text in head.split("\n")[:_SNIFF_LINES] if text.strip()]
    num_objects = sum(text.lstrip()[:1] == "{" for text in texts)
    if 2 * num_objects < len(texts) or not texts:
        return 0.0
    found = list(_head_records(head))
    if any(has_point(record) for record in found):
        return 0.92
    return 0.15 if found else 0.0


def _head_records(head: str) -> Iterator[Mapping[str, object]]:
    for text in head.split("\n")[:_SNIFF_LINES]:
        if text.lstrip()[:1] == "{":
            try:
                value = loads(text)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def read_trainer_log(path: Path) -> Iterator[Trace]:
    """LLaMA-Factory: an accuracy means preferences, a reward reinforcement learning."""
    points = Points(path, TRAINER_LOG)
    _fill(points, path)
    if "reward" not in points.keys and "accuracy" in points.keys:
        points.objective = "preference"
    yield from points.traces()


def read_jsonl(path: Path) -> Iterator[Trace]:
    """Every object with a loss, a gradient norm or a validation loss, nested ones included."""
    points = Points(path, JSONL)
    _fill(points, path)
    yield from points.traces()


def _fill(points: Points, path: Path) -> None:
    num_bad, last_is_bad = 0, False
    for text in source.lines(path):
        if not text or text.isspace():
            continue
        try:
            record = loads(text)
        except ValueError:
            num_bad, last_is_bad = num_bad + 1, True
            continue
        last_is_bad = False
        if isinstance(record, dict):
            add_record(points, record)
    if last_is_bad:
        points.note("the last line is cut off: left out")
        num_bad -= 1
    if num_bad:
        points.note(f"lines left out that are no JSON: {num_bad}")


READERS = (
    Reader(
        name=TRAINER_LOG,
        wants='lines such as {"current_steps": 10, "total_steps": 90, "loss": 1.2} (LLaMA-Factory)',
        sniff=sniff_trainer_log,
        read=read_trainer_log,
    ),
    Reader(
        name=JSONL,
        wants='lines such as {"step": 10, "loss": ...}, nested or not (any JSON lines)',
        sniff=sniff_jsonl,
        read=read_jsonl,
    ),
)
