"""In what two fingerprints differ, one readable line for everything."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pilot.jsonl import to_json
from pilot.run_code import MISSING

_RATES = "learning_rates"
_NAMES = {"repository_sha256": "other tracked files of the repository"}
_LONGEST = 120  # characters of a value in a line


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """One readable line for everything in which two fingerprints differ; empty: they are equal."""
    lines: list[str] = []
    for part in ("config", "code", "packages"):
        old, new = _plain(before.get(part)), _plain(after.get(part))
        if part == "code" and old and "files" not in old:
            lines.append("code: an older version of pilot noted it otherwise: pilot the run again")
            continue
        for key in sorted(set(old) | set(new)):
            if (part, key) == ("code", "files"):
                lines += _file_lines(_plain(old.get(key)), _plain(new.get(key)))
            else:
                name = _NAMES.get(key, key)
                lines += _line(f"{part} {name}", old.get(key, "absent"), new.get(key, "absent"))
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
    own = ("code pilot_version: ", "code pilot_sha256: ")
    return [line for line in lines if not line.startswith(own)]


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


def _file_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Which files of code were changed, beyond comments and formatting."""
    lines = []
    for name in sorted(set(before) | set(after)):
        if name not in before:
            lines.append(f"code {name}: was not imported before")
        elif name not in after or after[name] == MISSING:
            lines.append(f"code {name}: is not there any more")
        elif before[name] != after[name]:
            old, new = str(before[name])[:12], str(after[name])[:12]
            lines.append(f"code {name}: was changed (sha256 {old} -> {new})")
    return lines


def _plain(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _line(name: str, old: object, new: object) -> list[str]:
    a, b = to_json(old), to_json(new)
    if a == b:
        return []
    begin = len(os.path.commonprefix([a, b]))
    return [f"{name}: {_part(a, begin)} -> {_part(b, begin)}"]


def _part(text: str, begin: int) -> str:
    """All of a short value; of a long one what stands around its first difference."""
    if len(text) <= _LONGEST:
        return text
    first = max(0, min(begin - _LONGEST // 4, len(text) - _LONGEST))
    last = first + _LONGEST
    return f"{'...' if first else ''}{text[first:last]}{'...' if last < len(text) else ''}"


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
