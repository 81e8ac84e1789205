"""The sentences on events: the numbers in them are those of the log."""

from __future__ import annotations

import numpy as np

from pilot.diagnose.plain import happened, state_words
from pilot.diagnose.sure import how_sure
from pilot.series import detect
from pilot.series.types import Trace
from tests.series.make import healthy, main_event, trace


def told(made: Trace) -> tuple[str, str]:
    """What happened and how sure, of the deciding event."""
    event = main_event(detect(made))
    return happened(event, made), how_sure(event, made)


def test_a_spike_at_the_last_record() -> None:
    loss = healthy(200)
    loss[-1] = 12.0
    what, sure = told(trace(loss, np.ones(200)))
    assert what.endswith("to 12 at the last record (step 200); the log ends there")
    assert sure.startswith("low: ")
    assert "no jump of the gradient norm before it was seen" in sure


def test_a_level_at_the_end_is_one_of_the_event() -> None:
    loss = healthy(200)
    loss[-2:] = 12.0
    assert told(trace(loss))[0].endswith(
        "was not back when the log ended: 12 at the end (step 200)"
    )


def test_a_rise_that_goes_on_names_its_start_and_its_end() -> None:
    loss = healthy(600)
    loss[200:] += 0.02 * np.arange(400)
    what, _ = told(trace(loss))
    assert " at step 20" in what and "reached" not in what
    assert what.endswith("and is still rising: 9.92 at the end (step 600)")
    loss[450:] -= 0.03 * np.arange(150)
    what, _ = told(trace(loss))
    assert "still rising" not in what and "reached 7." in what


def test_the_lead_of_the_gradient_norm() -> None:
    loss, norms = healthy(400), np.ones(400)
    loss[250:] *= 2.4
    norms[240:] *= 20.0
    assert "the gradient norm rose 10 steps before the loss" in told(trace(loss, norms))[1]
    norms[:] = 1.0
    norms[250:] *= 20.0
    assert "the gradient norm rose together with the loss" in told(trace(loss, norms))[1]


def test_the_loss_after_a_jump_of_the_gradient_norm() -> None:
    loss, norms = healthy(300), np.ones(300)
    loss[201], norms[200] = 3.3, 30.0
    what, _ = told(trace(loss, norms))
    assert what.startswith("the gradient norm jumped from 1 to 30 at step 201; the loss followed, ")
    assert what.endswith("to 3.3 at step 202")


def test_a_loss_that_rose_and_one_that_cannot_show_health() -> None:
    rng = np.random.default_rng(4)
    loss = np.linspace(2.0, 2.12, 300) * (1.0 + 0.02 * rng.standard_normal(300))
    assert told(trace(loss))[0].startswith("the loss did not fall but rose: ")
    assert state_words("healthy") == "healthy"
    assert state_words("healthy", levelled=False) == "no NaN seen; this loss cannot show more"
    assert state_words("dead", levelled=False) == "dead"
