"""Lists of values on the command line: with ``-m``, each value is an arm around the recipe.

Only the notation is Hydra's: what comes of it is a star of arms in one pilot, no cross product.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    Override,
    OverrideType,
    QuotedString,
    RangeSweep,
)
from hydra.errors import HydraException

from pilot.arms.specs import same_value
from pilot.errors import Mistake

MAX_VALUES = 100  # of one list; an arm each
_HOW = "write KEY=VALUE,VALUE or KEY=choice(...) or KEY=range(start,stop,step)"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A key with the values listed for it, in their order; ``override`` is where they stand."""

    override: Override
    values: tuple[Any, ...]

    @property
    def key(self) -> str:
        """The dotted key, without a plus."""
        return str(self.override.key_or_group)

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The values as entries of ``arms.add``; a plus says that the key may be new."""
        plus = "" if self.override.type is OverrideType.CHANGE else "+"
        return [{f"{plus}{self.key}": value} for value in self.values]


def read_list(override: Override) -> Listed | Mistake:
    """The values that a sweep override lists; shuffling is not heeded: arms have an order."""
    key, text = override.key_or_group, str(override.input_line).partition("=")[2]
    sweep = override.value()
    if isinstance(sweep, ChoiceSweep):
        values: Iterable[Any] = map(_plain, sweep.list)
    elif isinstance(sweep, RangeSweep) and sweep.step:
        values = _range(sweep)
    else:
        return Mistake(key=key, value=text, rule="must list its values", remedy=_HOW)
    found = tuple(itertools.islice(values, MAX_VALUES + 1))
    if not found or len(found) > MAX_VALUES:
        rule = f"must list 1 to {MAX_VALUES} values: each one is an arm"
        return Mistake(key=key, value=text, rule=rule, remedy=_HOW)
    return Listed(override=override, values=found)


def add_override(changes: Sequence[Mapping[str, Any]]) -> str:
    """The override that sets ``arms.add`` to ``changes``.

    Raises:
        ValueError: Hydra's grammar cannot say it (a key with a quote in it).
    """
    text = f"arms.add={_hydra_text(list(changes))}"
    try:
        read_back = OverridesParser.create().parse_override(text).value()
    except HydraException as error:
        raise ValueError(text) from error
    if not same_value(read_back, list(changes)):
        raise ValueError(text)
    return text


def quoted(text: str) -> str:
    """``text`` in quotes of Hydra's grammar: backslashes count only in front of a quote."""
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", escaped) + "'"


def _range(sweep: RangeSweep) -> Iterable[Any]:
    """The values from start to below stop, as the decimals that were written: 0.3, not 0.30..04."""
    start, stop, step = sweep.start or 0, sweep.stop or 0, sweep.step
    if all(isinstance(number, int) for number in (start, stop, step)):
        return range(int(start), int(stop), int(step))
    count = math.ceil((stop - start) / step - 1e-9)
    return (float(f"{start + index * step:.12g}") for index in range(count))


def _plain(element: Any) -> Any:
    if isinstance(element, QuotedString):
        return element.text
    if isinstance(element, dict):
        return {_plain(key): _plain(value) for key, value in element.items()}
    return [_plain(item) for item in element] if isinstance(element, list) else element


def _hydra_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        items = (f"{_key_text(key)}:{_hydra_text(item)}" for key, item in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_hydra_text, value)) + "]"
    return quoted(value) if isinstance(value, str) else repr(value)


def _key_text(key: object) -> str:
    return re.sub(r"([\\()\[\]{}:=,\s])", r"\\\1", str(key))
