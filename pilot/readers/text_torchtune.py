"""torchtune: ``Step 10 | loss:1.2 lr:2e-05 grad_norm:..`` and its bar ``1|10|Loss: 1.2: 10%|``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pilot.readers.fields import objective
from pilot.readers.points import LAST, Points
from pilot.readers.record import EVIDENCE_ROWS
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, add, find, number
from pilot.series.types import EPOCH, LOSS

_METRICS = re.compile(r"^\W*Step (\d+) \| (\S+:.*)")
_PAIR = re.compile(rf"([A-Za-z][\w/.-]*):\s?({NUMBER})")
_BAR = re.compile(rf"(?:^|[^\d|])(\d+)\|(\d+)\|Loss: ({NUMBER})")
_LINE = re.compile(
    rf"^\W*Step \d+ \| (?:\S+:\S+ )*\S*loss\S*?:{NUMBER}|\b\d+\|\d+\|Loss: {NUMBER}", re.MULTILINE
)


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the rows of the metric logger and of the bar (the bar's loss is the same, rounded).

    Preference and reinforcement recipes tell by their keys; all others train a language model.
    """
    for line in lines:
        if "|" not in line:
            continue
        if "Step " in line and (match := _METRICS.match(line)) is not None:
            pairs = _PAIR.findall(match.group(2))
            add(points, int(match.group(1)), find(pairs))
            if len(points) <= EVIDENCE_ROWS:
                points.keys.update(key for key, _ in pairs)
        elif "|Loss: " in line and (match := _BAR.search(line)) is not None:
            epoch, step_text, loss = match.groups()
            points.train(int(step_text), {LOSS: number(loss), EPOCH: float(epoch)})
    what = objective(points.keys)
    points.objective = "lm" if what == "unknown" else what


READER = text_reader(
    "torchtune",
    "lines 'Step 10 | loss:1.2 lr:2e-05 ...' or the bar '1|10|Loss: 1.2:  10%|' (torchtune)",
    _LINE,
    feed,
    repeats=LAST,
)
