"""What the terminal shows of a plan before anything is run: what is trained, and what it costs.

Pure: nothing is printed here. Every word from data or the recipe goes through ``one_line`` and
stands in a ``Text``, which rich never reads as markup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pilot.arms.price import PlannedArm
from pilot.folder import BASELINE
from pilot.plan import Plan
from pilot.report.arm_text import changed
from pilot.report.blocks import Col, pairs, table
from pilot.report.words import human_bytes, human_secs, number, one_line, share_text


def plan_blocks(plan: Plan, survey: Mapping[str, Any]) -> list[RenderableType]:
    """The plan: segments, validations, data, the arms with their price, what stays unmeasured."""
    share = share_text(
        plan.start_step, plan.schedule.schedule_steps, plan.share_of_full_run, plan.whole_run
    )
    head = Text.assemble(
        ("plan", "bold"), f" for {one_line(plan.recipe)}: {plan.pilot_steps} steps, {share}"
    )
    facts = [
        ("validation", _validations(plan, survey)),
        ("checkpoints", _checkpoints(plan)),
        ("data", _data(plan, survey)),
        ("device", _device(survey)),
    ]
    if plan.extension_steps:
        facts.append(("events", _extension(plan)))
    rows = [
        *(("left out", line) for line in _left_out(plan)),
        ("price", _price(plan)),
        *(("not measured", one_line(item)) for item in plan.not_measured),
        *(("warning", one_line(item)) for item in plan.warnings),
    ]
    return [head, _segments(plan), pairs(facts), _arms(plan), pairs(rows), Text("")]


def _segments(plan: Plan) -> Table:
    made = table(
        Col("  segment"), Col("steps", "right"), Col("count", "right"), Col("learning rate", "left")
    )
    for segment in plan.segments:
        rates = f"{_rate(segment.first_learning_rate)} to {_rate(segment.last_learning_rate)}"
        branch = " (a branch)" if segment.name == "cool-down" else ""
        borders = f"{segment.first_step}-{segment.last_step}"
        made.add_row(f"  {segment.name}", borders, str(segment.num_steps), rates + branch)
    return made


def _arms(plan: Plan) -> Table:
    """What each arm changes and what it costs at most; the baseline first."""
    made = table(
        Col("  arm", may_wrap=True),
        Col("changes", may_wrap=True),
        Col("steps at most", "right"),
        Col("time", "right"),
    )
    secs = next((arm.secs for arm in plan.arms), None)
    steps = plan.pilot_steps + plan.cooldown_steps
    made.add_row(f"  {BASELINE}", "nothing: the recipe as it is", str(steps), _secs(secs))
    for arm in plan.arms:
        if not arm.left_out:
            change = changed({"variable": arm.variable, **_values(arm)})
            cells = (f"  {one_line(arm.title)}", change, str(arm.num_steps), _secs(arm.secs))
            made.add_row(*(Text(cell) for cell in cells))
    return made


def _values(arm: PlannedArm) -> dict[str, str]:
    return {"value": arm.value, "baseline_value": arm.baseline_value}


def _secs(secs: float | None) -> str:
    return "-" if secs is None else human_secs(secs)


def _left_out(plan: Plan) -> list[str]:
    """One line a reason, with the arms that it concerns."""
    titles: dict[str, list[str]] = {}
    for arm in plan.arms:
        if arm.left_out:
            titles.setdefault(one_line(arm.left_out), []).append(one_line(arm.title))
    return [f"{', '.join(names)}: {reason}" for reason, names in titles.items()]


def _price(plan: Plan) -> str:
    """The whole cost at most, in the baseline's own steps and in time."""
    steps = plan.pilot_steps + plan.cooldown_steps + plan.num_arm_steps
    text = f"at most {steps} steps, {number(plan.price_ratio)} x the run's own {plan.pilot_steps}, "
    if plan.expected_secs is None:
        text += "time unknown"
    else:
        text += f"about {human_secs(plan.expected_secs)}"
    if plan.num_parallel > 1:
        text += f", {plan.num_parallel} arms at a time"
    return text if not plan.num_arms else f"{text}; arms that are decided early cost less"


def _rate(value: float) -> str:
    return f"{value:.2e}" if value else "0"


def _validations(plan: Plan, survey: Mapping[str, Any]) -> str:
    places = ", ".join(f"{_place(at)} {step}" for at, step in plan.validations.items())
    most = survey.get("max_validation_rows")
    sizes = [
        f"{one_line(name, 40)} {_used(rows, most)}" + (", decides" if index == 0 else "")
        for index, (name, rows) in enumerate((survey.get("validation_rows") or {}).items())
    ]
    return f"after step: {places}" + (f" ({'; '.join(sizes)})" if sizes else "")


def _used(rows: int, most: int | None) -> str:
    return f"{rows} rows" if most is None or rows <= most else f"{most} of {rows} rows"


def _checkpoints(plan: Plan) -> str:
    places = ", ".join(f"{_place(at)} {step}" for at, step in plan.checkpoints.items())
    if not places:
        return "none"
    size = plan.checkpoint_bytes
    if not size:
        return places
    return f"{places}; {human_bytes(size)} each, {human_bytes(size * len(plan.checkpoints))} an arm"


def _extension(plan: Plan) -> str:
    return (
        f"a spike or shift undecided at step {plan.stop_step} extends the baseline by up to "
        f"{plan.extension_steps} steps"
    )


def _data(plan: Plan, survey: Mapping[str, Any]) -> str:
    shared = f" of {plan.num_processes} processes" if plan.num_processes > 1 else ""
    rows = f"{plan.rows_per_step} rows a step{shared}, {plan.num_rows_needed} rows needed"
    have = survey.get("num_train_rows")
    text = f"{rows} of {'a stream' if have is None else have}"
    names = [one_line(name, 30) for name in survey.get("source_names") or ()]
    if names:
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        text += f"; source{'s' if len(names) > 1 else ''}: {shown}"
    return text


def _device(survey: Mapping[str, Any]) -> str:
    parts = [one_line(survey.get("device") or "unknown")]
    if survey.get("num_parameters"):
        trained = survey.get("num_trainable_parameters", survey["num_parameters"])
        parts.append(f"{survey['num_parameters']:,} parameters, {trained:,} trainable")
    return "; ".join(parts)


def _place(at: str) -> str:
    return one_line(at).replace("_", " ")
