"""A user's directory with a recipe of their own: the tiny language model, and ways to break it."""

from __future__ import annotations

import json
from pathlib import Path

from pilot.jsonl import to_json
from pilot.view import load_arm

SOURCE = Path(__file__).resolve().parent.parent / "recipes_for_tests.py"

YAML = """\
# @package _global_
defaults:
  - override /arms: reference
recipe:
  name: tiny
  module: tiny
full_run: {schedule_steps: 400, warmup_steps: 5}
optim: {learning_rate: 0.02}
pilot: {min_peak_steps: 20, cooldown_steps: 6, checkpoint_every_steps: 4}
tracking: {uri: null}
out_dir: out
"""


def make_user_dir(root: Path, *, patch: str = "") -> Path:
    """``recipes/tiny.py`` and ``conf/recipe/tiny.yaml`` under ``root``; ``patch`` is appended code.

    The patch may replace ``build``: it is what pilot calls.
    """
    (root / "recipes").mkdir(parents=True)
    (root / "conf" / "recipe").mkdir(parents=True)
    text = SOURCE.read_text(encoding="utf-8") + "\n\n" + patch
    (root / "recipes" / "tiny.py").write_text(text, encoding="utf-8")
    (root / "conf" / "recipe" / "tiny.yaml").write_text(YAML, encoding="utf-8")
    return root


def verdict(root: Path) -> dict[str, object]:
    """The verdict of a pilot."""
    data: dict[str, object] = json.loads((root / "verdict.json").read_text())
    return data


def joined(arm: Path) -> str:
    """The joined step records of an arm, as text."""
    view = load_arm(arm)
    return "\n".join(to_json(record) for record in (*view.steps, *view.cooldown))
