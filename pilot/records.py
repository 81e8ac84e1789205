"""The value types that an arm writes, and their files: append-only JSON lines.

Deterministic facts (``steps.NNN.jsonl``, ``validations.jsonl``, ``evidence.jsonl``) and resources
(``resources.jsonl``: seconds, tokens per second, bytes) are kept apart: the first are bit-identical
for the same seeds on a CPU. A number that is not finite is written as the string ``"NaN"``,
``"Infinity"`` or ``"-Infinity"``: it is recorded as such, never averaged away.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pilot.errors import DiskFull

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """What was measured at one optimizer step (1-based, of the full run's own count).

    ``loss`` is the sum of the token losses over the supervised tokens, over all micro-batches, in
    nats per token. ``grad_norm`` is the global L2 norm before clipping, after unscaling.
    ``clip_coef`` is the factor that clipping applied (1.0: not clipped, or clipping is off).
    ``relative_update`` is |dW|/|W| over all trainable tensors, ``relative_update_median`` the
    median of the same ratio over tensors. ``param_norm`` is |W| after the step.
    """

    step: int
    learning_rate: float
    loss: float
    num_supervised_tokens: int
    num_tokens: int
    grad_norm: float
    clip_coef: float
    relative_update: float
    relative_update_median: float
    param_norm: float
    loss_scale: float | None
    step_skipped: bool
    finite_loss: bool
    finite_grads: bool
    finite_params: bool
    row_ids: tuple[int, ...]
    row_hash: str
    longest_tokens: int
    source_counts: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ValidationRecord:
    """The per-example losses of one validation set after ``step`` optimizer steps.

    ``at`` names the planned place (``before``, ``warmup_end``, ``mid_peak``, ``peak_end``,
    ``run_end``, ``cooldown_end``). ``loss_sums`` (nats) and ``token_counts`` have one entry per
    example, in the same order at every validation; ``loss`` is their token-weighted mean.
    """

    at: str
    step: int
    name: str
    primary: bool
    loss: float
    loss_sums: tuple[float, ...]
    token_counts: tuple[int, ...]
    attempt: int


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What an experiment measured. ``values`` holds plain JSON values, without seconds."""

    experiment: str
    scale: str
    step: int
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Seconds and bytes of one piece of work (``kind``: step, validation, checkpoint, ...)."""

    kind: str
    step: int
    secs: float
    peak_memory_bytes: int | None = None
    tokens_per_sec: float | None = None
    num_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How an arm ended; its completion marker (``outcome.json``).

    ``status``: ``completed``, ``stopped`` (non-finite: going on would measure nothing),
    ``exception`` or ``out_of_memory`` (the recipe's; with place, step, rows and message).
    """

    COMPLETED: ClassVar[str] = "completed"
    STOPPED: ClassVar[str] = "stopped"
    EXCEPTION: ClassVar[str] = "exception"
    OUT_OF_MEMORY: ClassVar[str] = "out_of_memory"

    status: str
    last_step: int
    where: str = ""
    step: int | None = None
    row_ids: tuple[int, ...] = ()
    error_type: str = ""
    message: str = ""
    traceback_text: str = ""
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check says about the records: a rule, the numbers, the limit and where it comes from.

    ``severity``: ``note``, ``warn``, ``undetermined`` (the rule could not decide: the gate becomes
    INCONCLUSIVE) or ``fail``. ``obj`` is the thing concerned: a tensor, row ids, an arm.
    """

    check: str
    severity: str
    category: str
    sentence: str
    step: int | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    limit: str = ""
    limit_source: str = ""
    obj: str = ""
    todo: str = ""


T = TypeVar("T")


def to_json(value: object) -> str:
    """One line of strict JSON; non-finite numbers become strings, keys keep their order."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def from_json(kind: type[T], data: Mapping[str, Any]) -> T:
    """Build the frozen value ``kind`` from parsed JSON; ignores unknown keys (newer writers)."""
    values: dict[str, Any] = {}
    for item in dataclasses.fields(kind):  # type: ignore[arg-type]
        if item.name not in data:
            continue
        value = data[item.name]
        values[item.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def parse(text: str) -> Any:
    """Parse JSON; ``"NaN"``, ``"Infinity"`` and ``"-Infinity"`` become floats again."""
    return _revive(json.loads(text))


def _revive(value: object) -> object:
    if isinstance(value, str):
        return _NON_FINITE.get(value, value)
    if isinstance(value, list):
        return [_revive(item) for item in value]
    if isinstance(value, dict):
        return {key: _revive(item) for key, item in value.items()}
    return value


class JsonlWriter:
    """Appends values to a JSON-lines file, one flushed line each (readable after ``kill -9``).

    A file that ends in a torn line (the writer was killed inside a write) gets that line cut off
    first. Raises ``DiskFull`` when the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _cut_torn_line(path)
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise _disk_error(path, error) from error

    def write(self, value: object) -> None:
        """Append ``value`` and flush it to the operating system."""
        try:
            self._file.write(to_json(value) + "\n")
            self._file.flush()
        except OSError as error:
            raise _disk_error(self.path, error) from error

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        try:
            self._file.close()
        except OSError as error:
            raise _disk_error(self.path, error) from error

    def __enter__(self) -> JsonlWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _disk_error(path: Path, error: OSError) -> Exception:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return DiskFull(path, error) if full else error


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def read_jsonl(path: Path, kind: type[T]) -> Iterator[T]:
    """The values of a file in order; a torn last line and a missing file yield nothing."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for line in lines[:-1]:  # what follows the last newline is torn
        if line:
            yield from_json(kind, parse(line))


def join_attempts(attempts: Iterable[Iterable[StepRecord]]) -> list[StepRecord]:
    """One series from several attempts: a later attempt wins from its first step on."""
    joined: list[StepRecord] = []
    for attempt in attempts:
        records = list(attempt)
        if records:
            joined = [record for record in joined if record.step < records[0].step]
            joined.extend(records)
    return joined


def write_json(path: Path, value: object) -> None:
    """Write indented JSON atomically (temporary file, then rename). Raises ``DiskFull``."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write text atomically (temporary file, then rename). Raises ``DiskFull``."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _disk_error(path, error) from error
