"""When an arm is the baseline: same start, no randomness used, the same bits for eight steps."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pilot.arms.specs import REPLICA
from pilot.engines import early_end
from pilot.engines.early_end import IDENTITY_STEPS, SEED_CHANGES_NOTHING, start_state
from pilot.engines.native import NativeEngine
from pilot.experiments import movement
from pilot.records import Evidence, Outcome
from pilot.view import ArmView, PilotView
from tests.factories import LOWER, build_view


def evidence(weights: str = "w", before: str = "r", after: str = "r") -> tuple[Evidence, ...]:
    """What an arm leaves of its start and of its random states."""
    start = {"weights_sha256": weights, "random_sha256": before}
    return (
        Evidence(experiment="start_state", scale="full", step=0, values=start),
        Evidence(experiment="random_state", scale="full", step=8, values={"random_sha256": after}),
    )


def with_replica(**changes: Any) -> PilotView:
    """A view with a replica of the baseline, both with evidence; ``changes`` are the replica's."""
    view = build_view()
    baseline = view.baseline
    assert baseline is not None
    job = dataclasses.replace(baseline.job, arm="replica_1", role=REPLICA, variable="pilot.seed")
    baseline = dataclasses.replace(baseline, evidence=evidence())
    replica = dataclasses.replace(
        baseline, job=job, evidence=evidence(before="q", after="q"), outcome=None
    )
    arms = {**view.arms, "baseline": baseline, "replica_1": dataclasses.replace(replica, **changes)}
    return dataclasses.replace(view, arms=arms)


def identical(view: PilotView) -> Outcome | None:
    arm: ArmView = view.arms["replica_1"]
    return early_end._identical(arm.job, view)


def test_an_equal_replica_is_identical() -> None:
    found = identical(with_replica())
    assert found == Outcome(
        status=Outcome.IDENTICAL, last_step=IDENTITY_STEPS, message=SEED_CHANGES_NOTHING
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"evidence": evidence(weights="other")},
        {"evidence": evidence(before="q", after="p")},
        {"evidence": ()},
        {"steps": ()},
        {"validations": ()},
        {"validations": build_view(baseline={"before": 2.9}).arms["baseline"].validations},
        {"steps": build_view().arms[LOWER].steps[1:]},
    ],
)
def test_anything_else_is_not(changes: dict[str, Any]) -> None:
    assert identical(with_replica(**changes)) is None


@pytest.mark.parametrize("name", ["loss", "grad_norm", "param_norm", "clip_coef", "row_hash"])
def test_one_other_bit_is_not(name: str) -> None:
    steps = list(with_replica().arms["replica_1"].steps)
    value = "x" if name == "row_hash" else getattr(steps[7], name) * (1 + 2**-52)
    steps[7] = dataclasses.replace(steps[7], **{name: value})
    assert identical(with_replica(steps=tuple(steps))) is None
    later = list(with_replica().arms["replica_1"].steps)
    later[8] = dataclasses.replace(later[8], **{name: value})
    assert identical(with_replica(steps=tuple(later))) is not None


def test_nan_is_never_identical() -> None:
    view = with_replica()
    broken = tuple(dataclasses.replace(r, loss=math.nan) for r in view.arms["baseline"].steps)
    arms = {n: dataclasses.replace(a, steps=broken) for n, a in view.arms.items()}
    assert identical(dataclasses.replace(view, arms=arms)) is None


def test_every_generator_counts() -> None:
    before = early_end._random_digest()
    assert early_end._random_digest() == before
    for draw in (random.random, np.random.random, lambda: torch.rand(1)):
        draw()
        after = early_end._random_digest()
        assert after != before
        before = after


def test_the_start_is_that_of_the_weights(make_engine: Callable[..., NativeEngine]) -> None:
    one, same = (make_engine(pilot={"seed": 1}) for _ in range(2))
    other = make_engine(pilot={"seed": 2})
    hashes = [
        start_state(engine, movement.start_weights(engine)).values["weights_sha256"]
        for engine in (one, same, other)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_bytes_of_any_dtype() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int64):
        assert len(early_end._bytes_of(torch.ones(3, dtype=dtype))) == 3 * dtype.itemsize
