"""OLMo and OLMo-core: ``[step=10/100]`` and below it a block of ``train/CE loss=2.3`` lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.readers.points import Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, add, find, number

_HEADER = re.compile(r"\[step=(\d+)/(?:\d+|\?+)[,\]]")
_METRIC = re.compile(
    rf"(?:^|\s{{2,}})(?P<key>[\w.+-]+(?:/[\w.+ *()-]+)*|[\w ()-]+)=(?P<value>{NUMBER})\s*$"
)
_FINISHED = re.compile(r"\bFinished (\S+) evals\b")
_CE = re.compile(r"(?:^|/)(?:CE loss|CrossEntropyLoss)$")
_LINE = re.compile(
    rf"\[step=\d+/(?:\d+|\?+)[,\]]|\b(?:train/CE loss|train/CrossEntropyLoss)={NUMBER}",
    re.MULTILINE,
)


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add a row per ``[step=...]`` block; validation losses belong to the last step seen.

    Only cross entropies on text count as validation losses, not those of multiple-choice tasks.
    Ranks other than 0 print the header alone.
    """
    step: int | None = None
    task = ""
    block: list[tuple[str, str]] = []
    for line in lines:
        if "[step=" in line and (header := _HEADER.search(line)) is not None:
            add(points, step, find(block))
            step, block, task = int(header.group(1)), [], ""
            continue
        if "=" in line and (metric := _METRIC.search(line)) is not None:
            key, value = metric.group("key").strip(), metric.group("value")
            if task or key.startswith("eval/"):
                _add_validation(points, step, key, value)
            else:
                block.append((key, value))
        elif "evals" in line and (finished := _FINISHED.search(line)) is not None:
            task = finished.group(1)
    add(points, step, find(block))


def _add_validation(points: Points, step: int | None, key: str, value: str) -> None:
    if _CE.search(key):
        name = _CE.sub("", key.removeprefix("eval/").removeprefix("lm/"))
        points.validation(step or 0, {name: number(value)})


READER = text_reader(
    "olmo",
    "blocks '[step=10/100]' with lines 'train/CE loss=2.3' (OLMo, OLMo-core)",
    _LINE,
    feed,
    objective="lm",
)
