"""An arm of a user's own optimizer and scheduler: made to differ in its one variable, or refused.

A training argument that is changed may not reach an optimizer or a scheduler that the user's code
makes by itself. What it reached is read off the parameter groups and the planned rates, compared
with those that the survey found for the baseline:

* a learning rate that a group did not take scales that group's rate at every step;
* a weight decay that no group took is set on the groups that have the baseline's;
* a schedule that was not taken makes the arm the baseline again: it is identical;
* any other key of the optimizer that was not taken is refused: nothing would differ.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import yaml

from pilot.arms.specs import CLIP, RATE
from pilot.config import Config, validate
from pilot.engines.arm import RunningArm
from pilot.errors import UsageError
from pilot.folder import BASELINE, PilotFolder, read_json
from pilot.jsonl import read_jsonl
from pilot.own_rates import OwnRates, rate_table, read_own_rates, same_rates
from pilot.records import Evidence, Outcome
from pilot.schedule import RateTable, scaled, table_schedule

EXPERIMENT = "schedule"
_DECAY = "optim.weight_decay"


def base_table(folder: PilotFolder) -> RateTable | None:
    """The rates that the survey found for the baseline; None where pilot sets the rates."""
    survey = read_json(folder.survey)
    return rate_table(folder.own_rates, survey, _baseline(folder).optim.learning_rate)


def settle_rates(arm: RunningArm, goes_on: bool) -> RunningArm | Outcome:
    """The arm with the schedule that its own Trainer plans; its optimizer is changed as needed.

    An arm that is the baseline again gives its outcome. ``goes_on``: it is resumed or forked.

    Raises:
        UsageError: the user's optimizer does not take what the arm changes.
    """
    folder = PilotFolder(arm.folder.root.parent.parent)
    own = None if arm.job.arm == BASELINE else arm.engine.own_rates()
    if own is None:
        return arm
    surveyed = read_own_rates(folder.own_rates, read_json(folder.survey))
    if surveyed is None:
        return arm
    kept = _kept(arm)
    _refuse_untaken(arm, own, surveyed)
    if not goes_on and _is_baseline_again(arm, own, surveyed):
        key = arm.job.variable
        message = f"the Trainer's own scheduler does not take {key}: the same rates, identical"
        return Outcome(status=Outcome.IDENTICAL, last_step=arm.engine.step, message=message)
    base = _baseline(folder)
    scales = kept["scales"] if kept else _scales(arm, base, own, surveyed)
    arm.engine.change_groups(scales, _decays(arm, base, own, surveyed))
    if kept is None:
        kept = _facts(arm, own, scales)
        arm.recorder.evidence(
            Evidence(experiment=EXPERIMENT, scale="full", step=arm.engine.step, values=kept)
        )
    return dataclasses.replace(arm, schedule=own_schedule(arm, kept))


def own_schedule(arm: RunningArm, facts: dict[str, Any]) -> Any:
    """The schedule of measured facts; the planned one where they are no plan."""
    if facts["unknown"]:
        return arm.schedule
    before = (math.nan,) * (int(facts["first_step"]) - 1)
    rate = arm.config.optim.learning_rate
    table = RateTable(rates=(*before, *facts["rates"]), base_rate=rate)
    return table_schedule(rate, arm.schedule.schedule_steps, table)


def _baseline(folder: PilotFolder) -> Config:
    return validate(yaml.safe_load(folder.config.read_text(encoding="utf-8")))


def _kept(arm: RunningArm) -> dict[str, Any] | None:
    """What an earlier attempt of this arm measured."""
    found = [e for e in read_jsonl(arm.folder.evidence, Evidence) if e.experiment == EXPERIMENT]
    return dict(found[-1].values) if found else None


def _facts(arm: RunningArm, own: OwnRates, scales: Sequence[float]) -> dict[str, Any]:
    """What the arm's optimizer will use, as far as a pilot goes."""
    last = arm.job.stop_step + arm.plan.extension_steps + 1
    rates = own.first_group[: max(1, last + 1 - own.first_step)]
    return {
        "first_step": own.first_step,
        "rates": list(scaled(rates, scales[0] if scales else 1.0)),
        "scales": list(scales),
        "unknown": own.unknown,
    }


def _is_same(own: OwnRates, surveyed: OwnRates, group: int) -> bool:
    """Whether a group's planned rates are the baseline's."""
    skip = own.first_step - surveyed.first_step
    return same_rates(own.rates[group], surveyed.rates[group][max(0, skip) :])


def _scales(arm: RunningArm, base: Config, own: OwnRates, surveyed: OwnRates) -> tuple[float, ...]:
    """The factor of every group: the arm's, where the group's rates are still the baseline's."""
    factor = arm.config.optim.learning_rate / base.optim.learning_rate
    if factor == 1.0:
        return ()
    if len(own.rates) != len(surveyed.rates):
        raise _refusal(
            arm, f"its optimizer has {len(own.rates)} parameter groups, not {len(surveyed.rates)}"
        )
    same = [_is_same(own, surveyed, group) for group in range(len(own.rates))]
    finds_own = [bool(group.get("relative_step")) for group in own.options]
    if any(finds_own) or any(math.isnan(row[0]) for row in own.rates):
        raise _refusal(arm, "the optimizer finds its own step: it has no learning rate to scale")
    return tuple(factor if is_same else 1.0 for is_same in same) if any(same) else ()


def _is_baseline_again(arm: RunningArm, own: OwnRates, surveyed: OwnRates) -> bool:
    """Whether an arm that changes only the schedule has the baseline's rates nevertheless."""
    job, shape = arm.job, own.rates.shape == surveyed.rates.shape
    if not job.variable.startswith("full_run.") or job.follows or own.unknown or not shape:
        return False
    return all(_is_same(own, surveyed, group) for group in range(len(own.rates)))


def _refuse_untaken(arm: RunningArm, own: OwnRates, surveyed: OwnRates) -> None:
    """Refuse an arm of an optimizer's option that left every parameter group as it was."""
    key = arm.job.variable
    if not key.startswith("optim.") or key in (RATE, CLIP, _DECAY, "optim._target_"):
        return
    leaf = key.rpartition(".")[2]
    known = {*own.options[0], *(("beta1", "beta2") if "betas" in own.options[0] else ())}
    if leaf in known and own.options == surveyed.options:
        raise _refusal(arm, "the Trainer's own optimizer does not take it: nothing would differ")


def _decays(arm: RunningArm, base: Config, own: OwnRates, surveyed: OwnRates) -> list[float] | None:
    """The weight decay of each group where the arm's was not taken; None: as they are."""
    wanted, before = arm.config.optim.weight_decay, base.optim.weight_decay
    decays = [float(group.get("weight_decay") or 0.0) for group in own.options]
    if wanted == before or own.options != surveyed.options:
        return None
    if not before or before not in decays:
        raise _refusal(
            arm,
            f"the Trainer's own optimizer does not take it (its groups have {decays}), and none of "
            f"them has the baseline's {before:g} to be replaced",
        )
    return [wanted if decay == before else decay for decay in decays]


def _refusal(arm: RunningArm, reason: str) -> UsageError:
    return UsageError(
        f"{arm.job.variable}={arm.job.value}: {reason}\n"
        "    remedy: make the optimizer from the training arguments, or drop the arm"
    )
