from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pilot.folder import PilotFolder
from pilot.records import Outcome
from pilot.report.colours import arm_style
from pilot.tracking import children
from tests.tracking.pilots import TITLES, five_arms

_VERDICT = {"verdict": "NO-GO", "fingerprint": {"hash": "e4f5a6b99"}}


def test_tags_say_what_changed_and_how_it_compares() -> None:
    view = five_arms()
    arm = view.arms["lr_x1_3"]
    row = {
        "name": "lr_x1_3",
        "variable": "optim.learning_rate",
        "value": "0.001",
        "baseline_value": "0.003",
        "follows": {"optim.min_rate": "0.0001"},
        "status": "decided",
        "effect": {"word": "worse"},
        "sentence": "lr x1/3: worse\x1b[31m\nby 0.1 token=abcdefgh",
    }
    tags = children.child_tags(view, {**_VERDICT, "arms": [row]}, arm)
    assert tags["mlflow.runName"] == "lr x1/3"
    assert tags["mlflow.runColor"] == arm_style(arm.job).colour
    assert tags["pilot.verdict"] == "NO-GO"
    assert (tags["pilot.recipe"], tags["pilot.fingerprint"]) == ("synthetic", "e4f5a6b99")
    assert (tags["pilot.role"], tags["pilot.order"]) == ("arm", "01")
    assert (tags["pilot.variable"], tags["pilot.value"]) == ("optim.learning_rate", "0.001")
    changed = "optim.learning_rate 0.003 -> 0.001; so optim.min_rate = 0.0001"
    assert tags["pilot.changed"] == changed
    assert (tags["pilot.word"], tags["pilot.status"]) == ("worse", "decided")
    assert tags["pilot.why"] == "lr x1/3: worse by 0.1 token=<hidden>"
    assert tags["pilot.first_nonfinite_step"] == "none"


def test_an_older_verdict_without_the_arm_is_no_error() -> None:
    view = five_arms()
    tags = children.child_tags(view, _VERDICT, view.arms["lr_x3"])
    assert tags["pilot.changed"] == "optim.learning_rate 0.003 -> 0.009"
    assert (tags["pilot.word"], tags["pilot.status"]) == ("not compared", "stopped")
    assert tags["pilot.first_nonfinite_step"] == "31"
    baseline = children.child_tags(view, _VERDICT, view.arms["baseline"])
    assert (baseline["pilot.word"], baseline["pilot.order"]) == ("reference", "00")
    assert baseline["pilot.variable"] == baseline["pilot.value"] == "none"


def test_a_secret_value_is_in_no_tag() -> None:
    view = five_arms()
    job = dataclasses.replace(
        view.arms["lr_x3"].job,
        variable="recipe.hub_token",
        value="letmein",
        baseline_value="sesame",
        title="hub_token letmein",
    )
    tags = children.child_tags(view, _VERDICT, dataclasses.replace(view.arms["lr_x3"], job=job))
    assert tags["mlflow.runName"] == "hub_token <hidden>"
    assert tags["pilot.changed"] == "recipe.hub_token <hidden> -> <hidden>"
    assert not [t for t in tags.values() if "letmein" in t or "sesame" in t]


def test_arms_stand_in_their_order_and_one_that_was_left_out_is_no_run() -> None:
    view = five_arms()
    arms = dict(reversed(view.arms.items()))
    left_out = dataclasses.replace(
        view.arms["lr_x3"], steps=(), num_attempts=0, outcome=None, absence={"status": "not run"}
    )
    view = dataclasses.replace(view, arms={**arms, "extra": left_out})
    assert tuple(arm.job.title for arm in children.sent_arms(view)) == TITLES
    same = Outcome(status=Outcome.IDENTICAL, last_step=0, message="never clipped: identical")
    identical = dataclasses.replace(left_out, outcome=same)
    view = dataclasses.replace(view, arms={**arms, "extra": identical})
    assert len(children.sent_arms(view)) == 6


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("completed", "FINISHED"),
        ("stopped", "FINISHED"),
        ("decided", "FINISHED"),
        ("identical", "FINISHED"),
        ("exception", "FAILED"),
        ("out_of_memory", "FAILED"),
        ("lost", "KILLED"),
    ],
)
def test_a_bad_result_is_finished_and_only_a_failure_failed(status: str, shown: str) -> None:
    assert children.child_status(five_arms().arms["lr_x3"], {"status": status}) == shown


def test_a_damaged_configuration_of_an_arm_is_replaced_by_the_pilots(tmp_path: Path) -> None:
    view, folder = five_arms(), PilotFolder(tmp_path)
    arm = view.arms["lr_x3"]
    assert children.arm_config(folder, view, arm) == view.config
    path = folder.arm("lr_x3").config
    path.parent.mkdir(parents=True)
    for text in ("{", "- 1"):
        path.write_text(text)
        assert children.arm_config(folder, view, arm) == view.config
    path.write_text("optim: {learning_rate: 0.009}")
    assert children.arm_config(folder, view, arm) == {"optim": {"learning_rate": 0.009}}
