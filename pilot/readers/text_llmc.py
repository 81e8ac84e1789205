"""llm.c: its ``main.log`` and what its programs print (train_gpt2.cu, .c and .py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from pilot.readers.points import ColumnKey, Points
from pilot.readers.text_base import text_reader
from pilot.readers.text_names import NUMBER, number
from pilot.series.types import GRAD_NORM, LEARNING_RATE, LOSS

_N = f"({NUMBER})"
# Some forks write a rest after the norm; the logs of older versions stop after the loss.
_MAIN = re.compile(
    rf"^s:(\d+) (?:trl:{_N}(?:\s+lr:{_N})?(?:\s+norm:{_N})?|tel:{_N})", re.IGNORECASE
)
_STDOUT = re.compile(
    rf"^\W*step\s+(\d+)/\d+\s?[|:] (?:train )?loss\s+{_N}[^|]*"
    rf"(?:\|\s*norm\s+{_N}[^|]*)?(?:\|\s*lr {_N})?"
)
_VALIDATION = re.compile(rf"^\W*val loss\s+{_N}\s*$")
_LINE = re.compile(
    rf"^s:\d+ (?:trl|tel):{_N}|^\W*step\s+\d+/\d+\s?[|:] (?:train )?loss\s+{NUMBER}", re.MULTILINE
)
_HINT = re.compile(r"^\| max_sequence_length T|^\| train_num_batches", re.MULTILINE)


def feed(points: Points, lines: Iterable[str]) -> None:
    """Add the steps. Stdout counts them from 1, ``main.log`` from 0; validations have no step."""
    step = 0
    add_plain = _plain_adder(points)
    for line in lines:
        if line.startswith("s:"):
            if not add_plain(line) and (match := _MAIN.match(line)) is not None:
                _add_main(points, match)
        elif "loss" in line:
            if (match := _STDOUT.match(line)) is not None:
                at, loss, norm, rate = match.groups()
                step = int(at)
                points.train(step, _values(loss, rate, norm))
            elif (match := _VALIDATION.match(line)) is not None:
                points.validation(step, {"": number(match.group(1))})


def _plain_adder(points: Points) -> Callable[[str], bool]:
    """A fast way for the plain line ``s:0 trl:9.1 lr:0.1 norm:2.3``, which such logs consist of.

    Such a log has millions of short lines: no pattern, no dictionary. False: not a plain line.
    """
    steps = points.steps
    columns = [points.column(ColumnKey(False, name)) for name in (LOSS, LEARNING_RATE, GRAD_NORM)]
    (losses, rates, norms) = columns

    def add(line: str) -> bool:
        parts = line.split()
        if len(parts) != 4 or line.count(":") != 4:
            return False
        at, loss, rate, norm = parts
        if loss[:4] != "trl:" or rate[:3] != "lr:" or norm[:5] != "norm:":
            return False
        try:
            step, values = int(at[2:]), (float(loss[4:]), float(rate[3:]), float(norm[5:]))
        except ValueError:
            return False
        row = len(steps)
        steps.append(step)
        for column in columns:
            column.rows.append(row)
        losses.values.append(values[0])
        rates.values.append(values[1])
        norms.values.append(values[2])
        return True

    return add


def _add_main(points: Points, match: re.Match[str]) -> None:
    at, loss, rate, norm, held_out = match.groups()
    if held_out is not None:
        points.validation(int(at), {"": number(held_out)})
    else:
        points.train(int(at), _values(loss, rate, norm))


def _values(loss: str, rate: str | None, norm: str | None) -> dict[str, float | None]:
    values: dict[str, float | None] = {LOSS: number(loss)}
    if rate is not None:
        values[LEARNING_RATE] = number(rate)
    if norm is not None:
        values[GRAD_NORM] = number(norm)
    return values


READER = text_reader(
    "llm.c",
    "lines 's:10 trl:9.1 lr:0.0001 norm:2.3' / 's:250 tel:6.1', or 'step 1/100 | loss 10.9 ...'",
    _LINE,
    feed,
    hint=_HINT,
    objective="lm",
)
