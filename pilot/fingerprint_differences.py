"""In what two fingerprints differ, one readable line for everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pilot.jsonl import to_json

_RATES = "learning_rates"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """One readable line for everything in which two fingerprints differ; empty: they are equal."""
    lines: list[str] = []
    for part in ("config", "code", "packages"):
        old, new = _plain(before.get(part)), _plain(after.get(part))
        for key in sorted(set(old) | set(new)):
            lines += _line(f"{part} {key}", old.get(key, "absent"), new.get(key, "absent"))
    lines += _data_lines(before.get("data") or [], after.get("data") or [])
    lines += _line("world_size", before.get("world_size"), after.get("world_size"))
    if before.get("trainer") and after.get("trainer"):  # only a process that has one can say
        lines += trainer_lines(before["trainer"], after["trainer"])
    return lines


def without_own_code(lines: Iterable[str]) -> list[str]:
    """``lines`` without those about pilot itself.

    A Trainer's full run is trained by the user's script: another version of pilot changes nothing
    in it. A pilot that is resumed, and a run that pilot's own loop trains, keep them.
    """
    return [line for line in lines if not line.startswith("code pilot_")]


def trainer_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """One line for everything in which two Trainers' runs differ.

    What only one of them says is skipped: an optimizer that did not exist yet, an argument of
    another version (which is a line of its own).
    """
    lines = []
    for name in sorted(set(before) & set(after) - {_RATES}):
        lines += _line(f"trainer {name}", before[name], after[name])
    if before.get("max_steps") == after.get("max_steps"):
        lines += _rate_lines(before.get(_RATES), after.get(_RATES))
    return lines


def _rate_lines(before: object, after: object) -> list[str]:
    if not before or not after or to_json(before) == to_json(after):
        return []
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return [f"trainer scheduler: {to_json(before)} -> {to_json(after)}"]
    step = next(s for s in before if to_json(before[s]) != to_json(after.get(s)))
    return _line(f"trainer learning rate of step {step}", before[step], after.get(step))


def _plain(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _line(name: str, old: object, new: object) -> list[str]:
    a, b = to_json(old), to_json(new)
    return [] if a == b else [f"{name}: {a} -> {b}"]


def _data_lines(before: Iterable[Any], after: Iterable[Any]) -> list[str]:
    old, new = _by_name(before), _by_name(after)
    lines = []
    for name in sorted(set(old) | set(new)):
        if name not in new:
            lines.append(f"data {name}: no longer read")
        elif name not in old:
            lines.append(f"data {name}: was not read before")
        elif old[name] != new[name]:
            lines.append(f"data {name}: {_contents(old[name])} -> {_contents(new[name])}")
    return lines


def _by_name(files: Iterable[Any]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for file in files:
        digest = str(file["sha256"] or "")
        found.setdefault(str(file["name"]), []).append((_size(file), digest))
    return {name: sorted(items) for name, items in found.items()}


def _size(file: Mapping[str, Any]) -> str:
    """Bytes of a file, rows of a set."""
    if "bytes" in file:
        return f"{int(file['bytes']):,} bytes"
    rows = file.get("rows")
    return "unknown rows" if rows is None else f"{int(rows):,} rows"


def _contents(items: Sequence[tuple[str, str]]) -> str:
    told = [(size, f"sha256 {digest[:12]}" if digest else "no digest") for size, digest in items]
    return ", ".join(f"{size} ({digest})" for size, digest in told)
