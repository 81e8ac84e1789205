"""A judged pilot of five arms in a folder: what the tests of this room send."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from pilot.folder import BASELINE, PilotFolder
from pilot.judge import judge, load_gates, write
from pilot.records import StepRecord
from pilot.view import ArmView, PilotView, load
from tests.factories import build_view, make_arm, make_order, write_view

RATE, CLIP = "optim.learning_rate", "optim.max_grad_norm"
FORK_STEP, BROKEN_STEP, LAST_STEP = 20, 31, 32
TITLES = ("baseline", "lr x1/3", "clip off", "lr x1/10", "lr x3")


def five_arms(**baseline: Any) -> PilotView:
    """``build_view`` with four arms: one forks at step 20, one is not finite at step 31.

    As it lies on disk: the forked arm has its own records only.
    """
    view = build_view(baseline=baseline)
    plan, order = view.plan, make_order(view.plan, view.rows)

    def arm(place: int, name: str, key: str, value: str, was: str, **parts: Any) -> ArmView:
        made = make_arm(plan, order, name=name, variable=key, value=value, **parts)
        job = dataclasses.replace(
            made.job, title=TITLES[place], order=place, baseline_value=was, role="arm"
        )
        return dataclasses.replace(made, job=job)

    lower = {"learning_rate": 0.001, "final": 2.1}
    lowest = {"learning_rate": 0.0003, "final": 2.4}
    higher = {"learning_rate": 0.009, "last_step": LAST_STEP, "edit": _broken}
    arms = (
        arm(1, "lr_x1_3", RATE, "0.001", "0.003", **lower),
        _forked(arm(2, "clip_off", CLIP, "null", "1.0", final=2.02)),
        arm(3, "lr_x1_10", RATE, "0.0003", "0.003", **lowest),
        arm(4, "lr_x3", RATE, "0.009", "0.003", **higher),
    )
    named = {made.job.arm: made for made in arms}
    return dataclasses.replace(view, arms={BASELINE: view.arms[BASELINE], **named})


def _broken(record: StepRecord) -> StepRecord:
    if record.step < BROKEN_STEP:
        return dataclasses.replace(record, loss=record.loss + 0.1 * max(0, record.step - 24))
    return dataclasses.replace(record, loss=math.nan, grad_norm=math.inf, finite_loss=False)


def _forked(arm: ArmView) -> ArmView:
    return dataclasses.replace(
        arm,
        job=dataclasses.replace(arm.job, fork_step=FORK_STEP),
        steps=tuple(r for r in arm.steps if r.step > FORK_STEP),
        validations=tuple(v for v in arm.validations if v.step > FORK_STEP),
        resources=tuple(r for r in arm.resources if r.kind != "step" or r.step > FORK_STEP),
    )


def write_judged(root: Path, view: PilotView, tree: Mapping[str, Any]) -> Path:
    """Write ``view`` with the configuration ``tree`` and judge it; each arm has its own value."""
    short = {**view.fingerprint, "hash": "e4f5a6b01234"}
    write_view(root, dataclasses.replace(view, config=tree, fingerprint=short))
    for name, arm in view.arms.items():
        text = yaml.safe_dump(_with(tree, arm.job.variable, arm.job.value))
        PilotFolder(root).arm(name).config.write_text(text, encoding="utf-8")
    write(root, judge(load(root), load_gates(build_view())))
    return root


def _with(tree: Mapping[str, Any], key: str, text: str) -> dict[str, Any]:
    changed: dict[str, Any] = yaml.safe_load(yaml.safe_dump(dict(tree)))
    *parents, leaf = key.split(".") if key else [""]
    node = changed
    for parent in parents:
        node = node[parent]
    if leaf:
        node[leaf] = yaml.safe_load(text)
    return changed
