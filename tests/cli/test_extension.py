"""An event that is undecided at the end of the peak extends the baseline, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pilot.view import load
from tests.cli.userdir import joined, make_user_dir, verdict
from tests.conftest import RunPilot

# From training step FIRST to LAST the loss is 3 nats higher, without effect on the gradient. The
# count is a buffer of the model: it is part of every checkpoint.
RAISED = """
class CountingLm(TinyLm):
    def __init__(self, **settings):
        super().__init__(**settings)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

class Raised(TinyRecipe):
    def __init__(self):
        super().__init__(num_rows=512)

    def build_model(self, scale):
        return CountingLm(dropout=self.dropout)

    def losses(self, model, batch):
        if not model.training:
            return super().losses(model, batch)
        if torch.is_grad_enabled():
            model.steps += 1
        raised = 3.0 if FIRST <= int(model.steps) <= LAST else 0.0
        return super().losses(model, batch) + raised * self.num_supervised(batch)

def build(settings, *, sequence_length, seed):
    return Raised()
"""
STEPS = "pilot.min_peak_steps=60"  # 5 of warm-up, then these: the peak ends at step 65


RECOVERS, STAYS = (62, 66), (62, 10**6)


def events_gate(root: Path) -> dict[str, Any]:
    gates: Any = verdict(root)["gates"]
    return next(gate for gate in gates if gate["name"] == "events")


def pilot(root: Path, run_pilot: RunPilot, raised: tuple[int, int], *words: str) -> Any:
    """Run a pilot whose loss is raised at these training steps; the process that did."""
    made = make_user_dir(root, patch=f"FIRST, LAST = {raised}\n" + RAISED)
    return run_pilot("+recipe=tiny", STEPS, *words, cwd=made)


def extension_of(root: Path) -> list[int]:
    baseline = load(root / "out").baseline
    assert baseline is not None and len(baseline.steps) == 65 and len(baseline.cooldown) == 6
    return [record.step for record in baseline.extension]


def test_a_loss_that_stays_high_is_decided_by_the_extension(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    done = pilot(tmp_path, run_pilot, STAYS)
    gate, steps = events_gate(tmp_path / "out"), extension_of(tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert gate["status"] == "fail"
    assert steps == list(range(66, 66 + len(steps))) and 32 <= len(steps) <= 96
    assert f"extended by {len(steps)} steps" in gate["sentence"]
    assert "at step 62" in done.stderr  # said while it ran


def test_a_spike_that_comes_back_in_the_extension_changes_nothing_else(
    tmp_path: Path, run_pilot: RunPilot
) -> None:
    more, none = tmp_path / "more", tmp_path / "none"
    extended = pilot(more, run_pilot, RECOVERS)
    undecided = pilot(none, run_pilot, RECOVERS, "pilot.max_extension_steps=0")
    assert extended.returncode == 0, extended.stdout + extended.stderr
    assert events_gate(more / "out")["status"] in ("pass", "warn")
    steps = extension_of(more)
    assert steps == list(range(66, 66 + len(steps))) and 1 <= len(steps) < 32
    assert undecided.returncode == 4, undecided.stdout + undecided.stderr
    assert events_gate(none / "out")["status"] == "undetermined"
    assert extension_of(none) == []
    for arm in ("baseline", "lr_x1_3"):
        assert joined(more / "out/arms" / arm) == joined(none / "out/arms" / arm)
