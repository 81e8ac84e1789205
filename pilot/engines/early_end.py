"""When an arm ends before its planned end: it is the baseline, it is decided, or it has lost.

Only measured records are looked at, at planned steps, so the same run ends at the same step again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pilot.arms.specs import REPLICA
from pilot.arms.tables import arm_settings
from pilot.compare.noise import noise_floor
from pilot.compare.sequential import decide_arm, evidence_values, first_step_of, looks
from pilot.engines import seeds
from pilot.folder import BASELINE, PilotFolder, read_json
from pilot.plan import BEFORE, read_plan
from pilot.records import Evidence, Outcome, StepRecord
from pilot.view import ArmView, PilotView, load

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from pilot.engines.base import Engine
    from pilot.engines.recorder import Recorder
    from pilot.folder import Job

# Steps after which a replica that equals the baseline bit by bit is not trained further. Weights
# and random states are compared as well; eight steps are for generators of the recipe's own.
IDENTITY_STEPS = 8
_LOST_EVERY_STEPS = 16  # beside the planned looks: an arm that has lost need not wait for one
_START, _RANDOM = "start_state", "random_state"
_COMPARED = ("row_hash", "loss", "grad_norm", "clip_coef", "relative_update", "param_norm")
SEED_CHANGES_NOTHING = f"the seed changes nothing: {IDENTITY_STEPS} steps equal bit for bit"


def start_state(engine: Engine, weights: Mapping[str, torch.Tensor]) -> Evidence:
    """Hashes of the weights and of the random states before the first step."""
    digest = hashlib.sha256()
    for name, tensor in weights.items():
        digest.update(name.encode())
        digest.update(_bytes_of(tensor))
    values = {"weights_sha256": digest.hexdigest(), "random_sha256": _random_digest()}
    return Evidence(experiment=_START, scale="full", step=engine.step, values=values)


def after_step(job: Job, engine: Engine, recorder: Recorder, root: Path) -> Outcome | None:
    """Whether this arm ends here; ``root`` is the pilot's folder."""
    done = engine.step - job.start_step
    if done == IDENTITY_STEPS and (job.arm == BASELINE or job.role == REPLICA):
        engine.flush()
        values = {"random_sha256": _random_digest()}
        recorder.evidence(
            Evidence(experiment=_RANDOM, scale="full", step=engine.step, values=values)
        )
        if job.role == REPLICA and not recorder.stop_reason:
            return _identical(job, load(root))
    if job.may_end_early and _is_look(job, engine.step, root):
        engine.flush()
        if not recorder.stop_reason:
            return _decided(job, engine.step, recorder, load(root))
    return None


def _is_look(job: Job, step: int, root: Path) -> bool:
    """The planned looks of the sequential test, and now and then for an arm that has lost."""
    if step >= job.stop_step:
        return False
    regular = (step - job.start_step) % _LOST_EVERY_STEPS == 0
    return regular or step in _planned_looks(root, first_step_of(job))


@lru_cache
def _planned_looks(root: Path, first_step: int) -> tuple[int, ...]:
    return looks(read_plan(read_json(PilotFolder(root).plan)), first_step)


def _identical(job: Job, view: PilotView) -> Outcome | None:
    arm, baseline = view.arms[job.arm], view.baseline
    if baseline is None or not (_unmoved(baseline) and _unmoved(arm)):
        return None
    if _start_weights(baseline) != _start_weights(arm) or not arm.steps:
        return None
    if _before(baseline) != _before(arm):  # other validation rows, or another way to see them
        return None
    last = job.start_step + IDENTITY_STEPS
    mine, theirs = ([r for r in one.steps if r.step <= last] for one in (arm, baseline))
    if not all(math.isfinite(r.loss) and math.isfinite(r.grad_norm) for r in mine):
        return None
    if [_measured(r) for r in mine] != [_measured(r) for r in theirs]:
        return None
    return Outcome(status=Outcome.IDENTICAL, last_step=last, message=SEED_CHANGES_NOTHING)


def _before(arm: ArmView) -> list[tuple[str, tuple[int, ...], tuple[float, ...]]]:
    """Sets, token counts and losses of the validation before step 1."""
    records = {v.name: v for v in arm.validations if v.at == BEFORE}
    return [(name, v.token_counts, v.loss_sums) for name, v in sorted(records.items())]


def _measured(record: StepRecord) -> list[Any]:
    return [getattr(record, name) for name in _COMPARED]


def _unmoved(arm: ArmView) -> bool:
    """Whether no random state was used between the start and the compared step."""
    start, later = arm.experiment(_START), arm.experiment(_RANDOM)
    if start is None or later is None:
        return False
    return bool(start.values["random_sha256"] == later.values["random_sha256"])


def _start_weights(arm: ArmView) -> Any:
    start = arm.experiment(_START)
    return start.values["weights_sha256"] if start else None


def _decided(job: Job, step: int, recorder: Recorder, view: PilotView) -> Outcome | None:
    decision = decide_arm(
        view, arm_settings(view), view.arms[job.arm], at_step=step, floor=noise_floor(view)
    )
    if decision is None:
        return None
    recorder.evidence(
        Evidence(experiment="early_end", scale="full", step=step, values=evidence_values(decision))
    )
    return Outcome(status=Outcome.DECIDED, last_step=step, step=step, message=decision.word)


def _random_digest() -> str:
    state = seeds.random_state()
    digest = hashlib.sha256(repr(state["python"]).encode())
    name, keys, *rest = state["numpy"]
    digest.update(f"{name} {rest}".encode() + _bytes_of(keys))
    for tensor in (state["torch"], *state["cuda"]):
        digest.update(_bytes_of(tensor))
    return digest.hexdigest()


def _bytes_of(tensor: torch.Tensor) -> bytes:
    """The raw bytes of a tensor, for any dtype (NumPy has no bfloat16)."""
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()
