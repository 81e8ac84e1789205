"""Synthetic pilots: a whole pilot in memory, or as a folder that looks as if one had run.

``build_view()`` gives a healthy pilot of 12 warm-up, 36 peak and 8 cool-down steps with one arm at
a third of the rate: its verdict is GO. Every part can be changed: by arguments, or with
``dataclasses.replace`` on the view (all values are frozen). ``write_view`` writes the folder;
``pilot.folder.load`` reads the same view back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from pilot.config import Config, validate
from pilot.folder import BASELINE, ArmFolder, PilotFolder
from pilot.jsonl import JsonlWriter, write_json
from pilot.plan import make_plan
from pilot.view import ArmView, PilotView
from tests.factory_arms import make_arm, make_order
from tests.factory_parts import (
    GATE_DEFAULTS,
    LOWER,
    NUM_ROWS,
    OTHER,
    PRIMARY,
    SOURCES,
    config_tree,
    make_audit,
    make_evidence,
    make_gates,
    make_movement,
    make_rows,
    make_step,
    make_survey,
    make_validation,
)

__all__ = [
    "GATE_DEFAULTS",
    "LOWER",
    "NUM_ROWS",
    "OTHER",
    "PRIMARY",
    "SOURCES",
    "build_view",
    "config_tree",
    "make_arm",
    "make_audit",
    "make_evidence",
    "make_gates",
    "make_movement",
    "make_order",
    "make_rows",
    "make_step",
    "make_survey",
    "make_validation",
    "with_arm",
    "with_baseline",
    "without_arm",
    "write_pilot",
    "write_view",
]


def build_view(
    *,
    config: Mapping[str, Any] | None = None,
    survey: Mapping[str, Any] | None = None,
    baseline: Mapping[str, Any] | None = None,
    lower: Mapping[str, Any] | None = None,
) -> PilotView:
    """A whole pilot in memory; the default one is healthy.

    Args:
        config: overrides of ``config_tree`` (``{"pilot__data": "prefix"}``).
        survey: overrides of ``make_survey``.
        baseline: arguments of ``make_arm`` for the baseline.
        lower: arguments of ``make_arm`` for the arm at a third of the rate.
    """
    tree = config_tree(**(config or {}))
    typed: Config = validate(tree)
    survey_values = make_survey(**(survey or {}))
    plan = make_plan(typed, survey_values)
    rows = make_rows()
    order = make_order(plan, rows)
    rate = typed.optim.learning_rate / 3.0
    lower_arm: dict[str, Any] = {
        "name": LOWER,
        "variable": "optim.learning_rate",
        "value": f"{rate:.6g}",
        "learning_rate": rate,
        "final": 2.1,
    }
    return PilotView(
        config=tree,
        plan=plan,
        survey=survey_values,
        rows=rows,
        fingerprint={"recipe": "0123", "data": "4567", "world_size": 1},
        arms={
            BASELINE: make_arm(plan, order, **(baseline or {})),
            LOWER: make_arm(plan, order, **{**lower_arm, **(lower or {})}),
        },
    )


def with_baseline(view: PilotView, **changes: Any) -> PilotView:
    """The view with fields of its baseline replaced."""
    return with_arm(view, BASELINE, **changes)


def with_arm(view: PilotView, name: str, **changes: Any) -> PilotView:
    """The view with fields of one arm replaced."""
    arms = {**view.arms, name: dataclasses.replace(view.arms[name], **changes)}
    return dataclasses.replace(view, arms=arms)


def without_arm(view: PilotView, name: str) -> PilotView:
    """The view without one arm's folder."""
    arms = {key: arm for key, arm in view.arms.items() if key != name}
    return dataclasses.replace(view, arms=arms)


def write_view(root: Path, view: PilotView) -> Path:
    """Write a view as the folder of a pilot that has run and was not judged; returns ``root``."""
    folder = PilotFolder(root)
    root.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(dict(view.config), sort_keys=False, allow_unicode=True)
    folder.config.write_text(text, encoding="utf-8")
    folder.unresolved.write_text(text, encoding="utf-8")
    write_json(folder.start, {"cwd": str(root), "module_path": "recipes/synthetic.py", "notes": []})
    write_json(folder.survey, view.survey)
    write_json(folder.plan, view.plan)
    write_json(folder.fingerprint, view.fingerprint)
    with folder.rows.open("wb") as file:
        np.savez_compressed(
            file,
            num_tokens=view.rows.num_tokens,
            num_supervised_tokens=view.rows.num_supervised_tokens,
            source=view.rows.source,
        )
    order = np.array(make_order(view.plan, view.rows), dtype=np.int64)
    np.save(folder.order, order, allow_pickle=False)
    for name, arm in view.arms.items():
        _write_arm(folder.arm(name), arm, text)
    return root


def _write_arm(folder: ArmFolder, arm: ArmView, config_text: str) -> None:
    folder.root.mkdir(parents=True, exist_ok=True)
    folder.config.write_text(config_text, encoding="utf-8")
    write_json(folder.job, arm.job)
    write_json(folder.lineage, {"parent": None, "fork_step": None, "attempts": arm.num_attempts})
    folder.log.write_text("", encoding="utf-8")
    for attempt in range(1, arm.num_attempts):  # killed before its first record
        _write_lines(folder.steps(attempt), ())
    if arm.num_attempts:
        _write_lines(folder.steps(arm.num_attempts), arm.steps)
    if arm.cooldown:
        _write_lines(folder.cooldown(arm.num_attempts), arm.cooldown)
    _write_lines(folder.validations, arm.validations)
    _write_lines(folder.evidence, arm.evidence)
    _write_lines(folder.resources, arm.resources)
    if arm.outcome is not None:
        write_json(folder.outcome, arm.outcome)


def _write_lines(path: Path, values: Sequence[object]) -> None:
    with JsonlWriter(path) as writer:
        for value in values:
            writer.write(value)


def write_pilot(root: Path, **parts: Any) -> Path:
    """``write_view(root, build_view(**parts))``: a pilot's folder in one call."""
    return write_view(root, build_view(**parts))
