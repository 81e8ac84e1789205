"""What a file without a point of a training is, where that can be told."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pilot.readers import source
from pilot.readers.record import number
from pilot.readers.text_skips import is_skip

_SUMMARY_LOSS = re.compile(r"['\"]train_loss['\"]\s*:\s*['\"]?([-+.\w]+)")
_MIN_BARE_LINES = 3


def is_wandb_summary(path: Path, head: str) -> bool:
    """Whether a file is one JSON object with the last values of a W&B run.

    A line of a W&B history has ``_runtime`` and ``_timestamp`` as well, but is not alone.
    """
    text = head.strip()
    if text[:1] != "{" or ("_wandb" not in text and "_runtime" not in text):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    has_times = isinstance(value, dict) and {"_runtime", "_timestamp"} <= value.keys()
    return has_times or (isinstance(value, dict) and "_wandb" in value)


def hint(path: Path, head: str) -> str:
    """What a text is in which no format found a point; "" where that is not known."""
    if '"current_steps"' in head and '"total_steps"' in head:
        num = sum(1 for text in source.lines(path) if '"current_steps"' in text)
        return f"this is a trainer_log.jsonl (LLaMA-Factory), none of its {num} lines has a loss"
    if "train_runtime" in head and (match := _SUMMARY_LOSS.search(head)) is not None:
        return f"only the summary at the end (train_loss {match[1][:12]}), no record of a step"
    num_skips = sum(is_skip(text) for text in head.split("\n"))
    if num_skips:
        return f"lines that say that an update was skipped: {num_skips}, but none with a loss"
    rows = [text.split() for text in head.split("\n") if text.strip()][:20]
    bare = [row for row in rows if len(row) > 1 and all(number(cell) is not None for cell in row)]
    if len(bare) >= _MIN_BARE_LINES and 2 * len(bare) > len(rows):
        return "columns of numbers without names; a first line such as 'step loss' would name them"
    return ""
