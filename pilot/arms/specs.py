"""Which arms a configuration asks for: the baseline and, around it, one variable each. Pure.

Order is priority: the reference that the gate ``progress`` needs comes first, then the clipping
arm, the other rates, what the user added, the replicas. A budget leaves out the last ones first.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import yaml

from pilot.arms.keys import no_influence
from pilot.config import Config
from pilot.folder import BASELINE

RATE, CLIP, SEED = "optim.learning_rate", "optim.max_grad_norm", "pilot.seed"
ARM, REPLICA = "arm", "replica"
ADDED = "arms.add"  # the key of conf/arms that asks for arms by name and value
ABSENT: Any = object()
_SEED_STEP = 1000  # far from the seeds that people count up by hand
_MAX_NAME_CHARS, _MAX_VALUE_CHARS = 60, 40


@dataclass(frozen=True, kw_only=True)
class ArmSpec:
    """One planned arm. ``value`` is a plain value for the key ``variable``.

    ``role`` is ``replica`` for every change of the seed: it tells the noise, and is no remedy.
    ``is_reference``: the gate ``progress`` compares with it, so it always runs to its end.
    ``no_influence``: why it is provably the baseline again and need not run, or empty. ``source``
    is the key of ``conf/arms`` that asked for it.
    """

    name: str
    title: str
    role: str
    variable: str
    value: Any
    is_reference: bool = False
    no_influence: str = ""
    source: str = ADDED


def arm_specs(config: Config) -> list[ArmSpec]:
    """The arms that ``config`` asks for, by priority, without the baseline and without doubles.

    A change to the value that the recipe has already is no arm, and two arms of the same key and
    value are one. The nearest lower learning rate, whoever asked for it, is the reference.
    """
    found: dict[str, ArmSpec] = {}
    plain = config.model_dump(by_alias=True)
    for spec in _wanted(config, plain):
        same = same_value(node_at(plain, spec.variable), spec.value)
        if same or any(_is_double(spec, other) for other in found.values()):
            continue
        name, titles = _free(spec.name, found), [other.title for other in found.values()]
        title = spec.title
        if title in titles:
            title = _free(f"{spec.variable} {_shown(spec.value)}", titles, " #")
        why = no_influence(spec.variable)
        found[name] = replace(spec, name=name, title=title, no_influence=why)
    return _reference_first(list(found.values()), config.optim.learning_rate)


def find_spec(config: Config, name: str) -> ArmSpec:
    """The arm called ``name``.

    Raises:
        KeyError: ``config`` asks for no such arm.
    """
    return {spec.name: spec for spec in arm_specs(config)}[name]


def single_change(change: Mapping[str, Any], tree: Mapping[str, Any]) -> tuple[str, Any]:
    """The dotted key and the value of one entry of ``arms.add``.

    A nested form is followed as far as it has one key and ``tree`` has a section there:
    ``{optim: {beta2: 0.95}}`` is ``optim.beta2``. A plus in front of a new key is left out.
    """
    ((first, value),) = change.items()
    key = first.removeprefix("+")
    while isinstance(value, Mapping) and len(value) == 1 and _is_section(tree, key):
        ((name, value),) = value.items()
        key = f"{key}.{str(name).removeprefix('+')}"
    return key, value


def node_at(tree: Mapping[str, Any], key: str) -> Any:
    """The value or section at a dotted key, or ``ABSENT``."""
    node: Any = tree
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return ABSENT
        node = node[part]
    return node


def same_value(one: Any, other: Any) -> bool:
    """Whether two plain values mean the same: 1 and 1.0 do, true and 1 do not; NaN is NaN."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_value(one[k], other[k]) for k in one)
    return bool(one == other) or (one != one and other != other)


def value_text(value: Any) -> str:
    """A plain value as YAML on one line, line breaks escaped; ``null`` is off."""
    text = yaml.dump(
        value, Dumper=_OneLine, default_flow_style=True, width=sys.maxsize, allow_unicode=True
    )
    return str(text).removesuffix("\n").removesuffix("\n...")


def _text(dumper: Any, text: str) -> Any:
    """Text with line breaks in double quotes, where they are escaped."""
    style = '"' if "".join(text.splitlines()) != text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_OneLine: Any = type("_OneLine", (yaml.SafeDumper,), {})
_OneLine.add_representer(str, _text)


def _reference_first(specs: list[ArmSpec], own: float) -> list[ArmSpec]:
    """The arms with the reference in front: the nearest rate below ``own``.

    A rate of at most half of it is preferred: one almost the same has the same faults.
    """
    lower = [spec for spec in specs if spec.variable == RATE and _is_lower(spec.value, own)]
    if not lower:
        return specs
    nearest = max(lower, key=lambda spec: (spec.value <= own / 2.0, float(spec.value)))
    rest = [spec for spec in specs if spec is not nearest]
    return [replace(nearest, is_reference=True), *rest]


def _is_lower(value: Any, own: float) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0.0 < value < own


def _wanted(config: Config, plain: Mapping[str, Any]) -> Iterator[ArmSpec]:
    yield from _clipping(config)
    for scale in config.arms.learning_rate_scales:
        yield _scaled(config, Fraction(scale))
    for change in config.arms.add:
        yield _added(*single_change(change, plain))
    for number in range(1, config.arms.num_replicas + 1):
        yield ArmSpec(
            name=f"replica_{number}",
            title=f"replica {number}",
            role=REPLICA,
            variable=SEED,
            value=(config.pilot.seed + _SEED_STEP * number) % 2**32,
            source="arms.num_replicas",
        )


def _clipping(config: Config) -> Iterator[ArmSpec]:
    limit, source = config.arms.max_grad_norm, "arms.max_grad_norm"
    if limit is None:
        return
    if config.optim.max_grad_norm is not None:
        name, title, value = "clip_off", "clip off", None
    else:
        name, title, value = "clip_on", f"clip {limit:g}", limit
    yield ArmSpec(name=name, title=title, role=ARM, variable=CLIP, value=value, source=source)


def _scaled(config: Config, scale: Fraction) -> ArmSpec:
    value = float(f"{config.optim.learning_rate * float(scale):.6g}")
    small = scale.limit_denominator(1000)
    text = str(small) if small == scale else f"{float(scale):g}"
    return ArmSpec(
        name=_slug(f"lr_x{text}"),
        title=f"lr x{text}",
        role=ARM,
        variable=RATE,
        value=value,
        source="arms.learning_rate_scales",
    )


def _added(key: str, value: Any) -> ArmSpec:
    shown = _shown(value)
    if key == CLIP:
        title = "clip off" if value is None else f"clip {shown}"
    else:
        title = f"{key.rpartition('.')[2]} {shown}"
    if key == RATE:
        title = f"lr {shown}"
    role = REPLICA if key == SEED else ARM
    return ArmSpec(name=_slug(title), title=title, role=role, variable=key, value=value)


def _shown(value: Any) -> str:
    """A value in a title: short, on one line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return textwrap.shorten(text, _MAX_VALUE_CHARS, placeholder="...") or '""'


def _is_section(tree: Mapping[str, Any], key: str) -> bool:
    node = node_at(tree, key)
    return isinstance(node, Mapping) and bool(node)


def _is_double(one: ArmSpec, other: ArmSpec) -> bool:
    return one.variable == other.variable and same_value(one.value, other.value)


def _slug(text: str) -> str:
    """A folder name: ``lr x1/3`` becomes ``lr_x1_3``."""
    name = re.sub(r"[^A-Za-z0-9.+-]+", "_", text).strip("_.")[:_MAX_NAME_CHARS]
    return name if name and name != BASELINE else f"arm_{name}"


def _free(name: str, taken: Collection[str], sign: str = "_") -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}{sign}{number}", number + 1
    return free
