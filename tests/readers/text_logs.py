"""Small text logs for the tests of the text formats, and how the tests read them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pilot.readers import registry
from pilot.readers.text_formats import READERS
from pilot.series.types import Trace

# What stands between the lines of real logs; no reader may take any of it for a point.
JUNK = (
    "/usr/lib/python3/site-packages/torch/x.py:774: UserWarning: the loss is not a tensor",
    "wandb: WARNING Saving files without folders. step 5 of 7",
    "Downloading shards:  40%|####      | 2/5 [00:03<00:04,  1.51s/it]",
    "[rank0]:[W321 04:00:39.929 ProcessGroupNCCL.cpp:1771] Failed to check the flag",
    "saving checkpoint at iteration    100 to ckpt",
    "",
    "loss",
)


def write(folder: Path, lines: Sequence[str] | str, name: str = "run.log") -> Path:
    """Write a log and return its path."""
    path = folder / name
    text = lines if isinstance(lines, str) else "\n".join(lines) + "\n"
    path.write_text(text, encoding="utf-8")
    return path


def with_junk(lines: Sequence[str]) -> list[str]:
    """The lines with junk before, between and after them."""
    mixed = list(JUNK)
    for index, line in enumerate(lines):
        mixed += [line, JUNK[index % len(JUNK)]]
    return mixed


def sniffed(text: Sequence[str] | str) -> str:
    """The name of the text format that is surest of a log ("" where none claims it)."""
    head = text if isinstance(text, str) else "\n".join(text) + "\n"
    scores = [(reader.sniff(head, Path("run.log")), -i) for i, reader in enumerate(READERS)]
    score, index = max(scores)
    return READERS[-index].name if score >= registry.LIKELY else ""


def read_all(folder: Path, lines: Sequence[str] | str) -> list[Trace]:
    """The runs of a log, read as a user would: the registry chooses the format."""
    return registry.read(write(folder, lines))


def read_one(folder: Path, lines: Sequence[str] | str, format: str) -> Trace:
    """The only run of a log; it must have been recognised as ``format``."""
    (trace,) = read_all(folder, lines)
    assert trace.format == format
    return trace


def points(trace: Trace, name: str) -> dict[int, float]:
    """A training quantity as step: value."""
    series = trace.train[name]
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def held_out(trace: Trace, name: str = "") -> dict[int, float]:
    """The losses of a validation set as step: value."""
    series = trace.validations[name]
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))
