from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pilot.checks
from pilot.checks.registry import (
    GATE_NAMES,
    all_checks,
    register,
    run_check,
    unknown_names,
)
from tests.factories import build_view, make_gates, without_arm


def test_every_file_of_a_check_is_registered() -> None:
    names = [info.name for info in all_checks()]
    assert names == [
        "clipping", "coverage", "determinism", "early_damage", "events", "finite", "labels",
        "memory", "movement", "order", "outcome", "paired_loss", "progress", "schedule",
        "silent_gradients", "validation", "weight_jump",
    ]  # fmt: skip
    modules = {name.split("_")[0] for name in pilot.checks.__all__}
    assert {"early", "paired", "silent", "jump"} <= modules and len(modules) == len(names)


def test_every_check_says_what_it_costs_and_where_its_limit_comes_from() -> None:
    for info in all_checks():
        assert info.cost and info.limit_source and info.judge.__doc__, info.name


def test_the_gates_without_a_check_are_the_two_that_come_later() -> None:
    have = {info.gate for info in all_checks()}
    assert [name for name in GATE_NAMES if name not in have] == ["invariance", "resume"]


def test_names_and_gates_are_checked() -> None:
    more = {"category": "data", "cost": "none", "limit_source": "none"}
    with pytest.raises(ValueError, match="registered already"):
        register(name="finite", gate="finite", **more)
    with pytest.raises(ValueError, match="no such gate"):
        register(name="new", gate="nonsense", **more)
    assert unknown_names(("finite", "new")) == ("new",)


def test_a_skipped_check_says_so() -> None:
    view = build_view(config={"checks__skip": ["finite"]})
    result = run_check("finite", view, make_gates())
    assert not result.measured and result.reason == "skipped by checks.skip"
    assert run_check("labels", view, make_gates()).measured


def test_without_a_baseline_every_check_still_answers() -> None:
    view = without_arm(build_view(), "baseline")
    for info in all_checks():
        result = run_check(info.name, view, make_gates())
        assert result.measured or result.reason, info.name
        assert "fail" not in {f.severity for f in result.findings}, info.name


def test_judging_needs_no_torch() -> None:
    code = (
        "import sys, pilot.judge;"
        "heavy = ('torch', 'mlflow', 'transformers', 'matplotlib', 'pandas');"
        "sys.exit(any(name in sys.modules for name in heavy))"
    )
    root = Path(pilot.checks.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
