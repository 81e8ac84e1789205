"""The learning rates that a user's own scheduler plans, as measured before a run, and their file.

The survey writes them; plan and arms read them. Nothing here needs a model.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pilot.schedule import RateTable

if TYPE_CHECKING:
    import numpy.typing as npt

SURVEYED = "own_rates"  # the key of survey.json
_SAME = 1e-9  # relative: the same rate by two ways of computing it in float64


@dataclass(frozen=True, kw_only=True)
class OwnRates:
    """What a Trainer's scheduler plans, a row for each parameter group of the optimizer.

    ``rates`` has the shape [groups, steps] and begins with ``first_step``; NaN: not known.
    ``unknown`` says why the run's rates may differ (a scheduler that reacts to metrics); empty when
    they are the plan. ``raises``: what the scheduler raises within the run, and after which step.
    ``options`` are the other plain values of each group (``weight_decay``, ``betas``).
    """

    first_step: int
    rates: npt.NDArray[np.float64]
    options: tuple[Mapping[str, Any], ...]
    unknown: str = ""
    raises: str = ""

    @property
    def first_group(self) -> tuple[float, ...]:
        """The rates of the group whose rate stands in the records."""
        return tuple(float(rate) for rate in self.rates[0]) if len(self.rates) else ()

    def table(self, base_rate: float) -> RateTable:
        """The same for a plan; steps before ``first_step`` are not known."""
        before = (math.nan,) * (self.first_step - 1)
        return RateTable(
            rates=(*before, *self.first_group), base_rate=base_rate, unknown=self.unknown
        )

    def facts(self) -> dict[str, Any]:
        """Everything but the rates themselves, for ``survey.json``."""
        return {
            "first_step": self.first_step,
            "num_groups": len(self.rates),
            "peaks": [_peak(row) for row in self.rates],
            "options": [dict(group) for group in self.options],
            "proportional": self.is_proportional(),
            "unknown": self.unknown,
            "raises": self.raises,
        }

    def is_proportional(self) -> bool:
        """Whether all groups follow one schedule: their rates have one ratio at every step."""
        first = self.rates[:1]
        if not len(first) or not first.size:
            return True
        peaks = np.array([_peak(row) for row in self.rates])
        if not peaks[0]:
            return not np.any(self.rates)
        expected = peaks[:, None] / peaks[0] * first
        tolerance = 1e-6 * np.maximum(peaks, 1e-300)[:, None]
        return bool(np.all((np.abs(self.rates - expected) <= tolerance) | np.isnan(expected)))


def _peak(row: npt.NDArray[np.float64]) -> float:
    finite = row[np.isfinite(row)]
    return float(finite.max()) if finite.size else 0.0


def plain_options(groups: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The plain values of parameter groups but their rates, as JSON holds them."""
    return tuple(_plain(group) for group in groups)


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in group.items():
        items = value if isinstance(value, (list, tuple)) else [value]
        plain = all(item is None or isinstance(item, (bool, int, float, str)) for item in items)
        if key not in ("params", "param_names", "lr", "initial_lr") and plain:
            found[str(key)] = list(items) if isinstance(value, (list, tuple)) else value
    return found


def same_rates(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> bool:
    """Whether two series of rates, of the same steps, are the same as far as both go."""
    count = min(len(one), len(other))
    return bool(np.allclose(one[:count], other[:count], rtol=_SAME, atol=0.0, equal_nan=True))


def write_own_rates(path: Path, own: OwnRates) -> None:
    """Write the rates of all groups, as a whole or not at all."""
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        np.save(file, own.rates, allow_pickle=False)
    os.replace(temporary, path)


def read_own_rates(path: Path, survey: Mapping[str, Any]) -> OwnRates | None:
    """The surveyed rates; None where pilot sets the rates itself, or none could be measured."""
    facts = survey.get(SURVEYED)
    if not facts or not path.is_file():
        return None
    return OwnRates(
        first_step=int(facts["first_step"]),
        rates=np.load(path, allow_pickle=False),
        options=tuple(facts["options"]),
        unknown=str(facts["unknown"]),
        raises=str(facts["raises"]),
    )


def rate_table(path: Path, survey: Mapping[str, Any], base_rate: float) -> RateTable | None:
    """The surveyed rates of the first group, of a baseline whose learning rate is ``base_rate``."""
    own = read_own_rates(path, survey)
    return own.table(base_rate) if own is not None else None
