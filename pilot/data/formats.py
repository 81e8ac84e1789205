"""Instruction data from JSON, JSON lines and their ``.gz``, in Alpaca or ShareGPT form.

Files are read whole. All problems of a file are collected (up to ``MAX_PROBLEMS``) and raised as
one ``DataError`` that names the line (JSON lines) or row (JSON) of each.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pilot.data.rows import Conversation, RowProblem, parse_row, type_name
from pilot.errors import DataError

MAX_PROBLEMS = 20


def read_conversations(path: Path) -> list[Conversation]:
    """Read a data file; ``source`` of a row defaults to the file's name without its endings.

    Raises:
        DataError: the file is missing, a folder, empty, not UTF-8, not JSON, or has rows that
            cannot be used (each with its line or row, up to ``MAX_PROBLEMS``).
    """
    kind = _kind(path)
    text = _read_text(path)
    if not text.strip():
        raise DataError(path, "is empty", remedy="give a file with at least one row")
    label = "line" if kind == "jsonl" else "row"
    rows = _json_lines(text) if kind == "jsonl" else _json_list(path, text)
    found: list[Conversation] = []
    problems: list[tuple[int, RowProblem]] = []
    for number, row in rows:
        try:
            if isinstance(row, RowProblem):
                raise row
            found.append(parse_row(row, default_source(path), number))
        except RowProblem as problem:
            problems.append((number, problem))
            if len(problems) == MAX_PROBLEMS:
                break
    if problems:
        raise _data_error(path, label, problems)
    if not found:
        raise DataError(path, "has no rows", remedy="give a file with at least one row")
    return found


def default_source(path: Path) -> str:
    """The file's name without ``.gz`` and without ``.json`` or ``.jsonl``."""
    name = path.name.removesuffix(".gz")
    return name.rsplit(".", 1)[0] or name


def _data_error(path: Path, label: str, problems: list[tuple[int, RowProblem]]) -> DataError:
    number, first = problems[0]
    if len(problems) == 1:
        line = number if label == "line" else None
        what = first.what if label == "line" else f"row {number}: {first.what}"
        return DataError(path, what, remedy=first.remedy, line=line)
    at_least = "at least " if len(problems) == MAX_PROBLEMS else ""
    lines = [f"{at_least}{len(problems)} rows cannot be used:"]
    lines += [f"    {label} {n}: {problem.what}" for n, problem in problems]
    remedies = dict.fromkeys(problem.remedy for _, problem in problems)
    return DataError(path, "\n".join(lines), remedy="; ".join(remedies), line=None)


def _kind(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    for ending, kind in ((".jsonl", "jsonl"), (".ndjson", "jsonl"), (".json", "json")):
        if name.endswith(ending):
            return kind
    raise DataError(
        path,
        "is not a kind of file that is read",
        remedy="give .json (a list) or .jsonl (one object a line), each also as .gz",
    )


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise DataError(path, "is a folder", remedy="give the data file inside it")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(
            path, "does not exist", remedy="check the path; relative paths start where pilot runs"
        ) from None
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise DataError(path, what, remedy="check the file's permissions") from error
    if path.name.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            what = f"is damaged or not gzip: {error}"
            raise DataError(path, what, remedy="compress it again, or give it unpacked") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        raise DataError(path, what, remedy="save the file as UTF-8", line=line) from error


def _json_lines(text: str) -> Iterator[tuple[int, Any]]:
    # Not splitlines(): U+2028 and friends may stand unescaped inside JSON strings.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            whole = number == 1 and line.lstrip().startswith("[")
            remedy = (
                "this looks like one JSON list: name the file .json"
                if whole
                else "each line must be one complete JSON object"
            )
            yield number, RowProblem(f"not JSON: {_parse_message(error)}", remedy)


def _parse_message(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _json_list(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        lines = str(error).startswith("Extra data")
        remedy = "this looks like JSON lines: name the file .jsonl" if lines else "repair the JSON"
        what = f"not JSON: {_parse_message(error)}"
        raise DataError(path, what, remedy=remedy, line=line) from error
    if not isinstance(value, list):
        what = f"holds {type_name(value)}, not a list of rows"
        raise DataError(path, what, remedy="put the rows in one JSON list: [{...}, {...}]")
    return enumerate(value, start=1)
