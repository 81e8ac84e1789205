"""The arms and their cost in ``report.md``: what was changed, what came of it, what it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pilot.report import arm_text
from pilot.report.markdown_text import bullets, escape, table
from pilot.report.words import FIGURE_NAME, human_secs, number

Row = Mapping[str, Any]


def arms_section(verdict: Mapping[str, Any]) -> list[str]:
    """The arms as a table; then the figure, reasons, followers, lineage, margin and noise floor."""
    arms: Sequence[Row] = verdict.get("arms") or ()
    if not arms:
        return []
    level = arm_text.level_text(arms)
    head = ("arm", "changed", "from", "to", "result", "final validation")
    difference = f"difference to the baseline ({level} interval)" if level else "difference"
    start = int((verdict.get("plan") or {}).get("start_step") or 0)
    rows = [_arm_row(arm, start) for arm in arms]
    about = [*_margin_and_noise(verdict), *bullets([*_footnotes(arms), *_remarks(arms)])]
    return [
        *table((*head, difference, "n", "steps"), rows),
        "",
        *about,
        *([""] if about else []),
        f"![The curves of the baseline and its arms](figures/{FIGURE_NAME})",
    ]


def _arm_row(arm: Row, start_step: int) -> tuple[object, ...]:
    change = arm.get("difference") or {}
    unchanged = "the recipe unchanged" if arm_text.is_baseline(arm) else "-"
    return (
        arm_text.title(arm),
        arm.get("variable") or unchanged,
        arm.get("baseline_value") or "-",
        arm.get("value") if arm.get("variable") else "-",
        arm_text.result(arm, start_step),
        number_or_dash(arm.get("final_loss")),
        arm_text.difference(arm),
        change.get("num_examples", "-"),
        arm_text.own_steps(arm),
    )


def _footnotes(arms: Sequence[Row]) -> Iterator[str]:
    if arm_text.has_footnote(arms):
        yield arm_text.FOOTNOTE


def _remarks(arms: Sequence[Row]) -> Iterator[str]:
    """One line a fact that the table has no column for."""
    for arm in arms:
        title = arm_text.title(arm)
        if arm_text.reason(arm):
            yield f"{title}: {arm_text.reason(arm)}"
        follows = arm.get("follows") or {}
        if follows:
            values = ", ".join(f"{key}={value}" for key, value in follows.items())
            yield f"{title}: follows by interpolation: {values}"
        if arm.get("fork_step") is not None:
            yield f"{title}: starts from the baseline's state after step {arm['fork_step']}"
        if int(arm.get("num_attempts") or 0) > 1:
            yield f"{title}: {arm['num_attempts']} attempts, joined"


def _margin_and_noise(verdict: Mapping[str, Any]) -> Iterator[str]:
    for key, name in (("margin", "Margin"), ("noise", "Noise floor")):
        found = verdict.get(key) or {}
        if found.get("sentence"):
            yield f"**{name}:** {escape(found['sentence'])}"
            yield ""


def noise_limit(verdict: Mapping[str, Any]) -> str:
    """What the differences between arms do not include."""
    noise = verdict.get("noise") or {}
    if noise.get("source") in ("replicas", "stored"):
        runs = noise.get("num_runs", "several")
        return f"The noise between seeds is estimated from {runs} runs of this recipe only."
    return "Standard errors are over validation examples; the noise between seeds was not measured."


def cost_section(verdict: Mapping[str, Any]) -> list[str]:
    """Steps and seconds in all and for each arm, and the steps that were saved, with the reason."""
    cost = verdict["cost"]
    titles = {arm.get("name"): arm_text.title(arm) for arm in verdict.get("arms") or ()}
    total = f"{cost['num_steps']} optimizer steps, {human_secs(cost['secs'])} of measured work."
    if cost.get("ratio") is not None:
        total += (
            f" That is {number(cost['ratio'])} x the {cost.get('baseline_steps', '')} steps of the "
            "baseline without its cool-down."
        )
    rows = [
        (
            titles.get(item["arm"], item["arm"]),
            item["num_steps"],
            item.get("num_attempts", "-"),
            human_secs(item["secs"]),
            ", ".join(f"{kind} {human_secs(s)}" for kind, s in item["secs_by_kind"].items()) or "-",
        )
        for item in cost["arms"]
    ]
    lines = [total, "", *table(("arm", "own steps", "attempts", "time", "of which"), rows)]
    return [*lines, *_saved(cost.get("saved") or ())]


def _saved(saved: Sequence[Row]) -> list[str]:
    if not saved:
        return []
    total = sum(int(item.get("num_steps") or 0) for item in saved)
    items = [f"{item.get('arm')}: {item.get('num_steps')} ({item.get('why')})" for item in saved]
    return ["", f"{total} steps were planned and not needed:", "", *bullets(items)]


def number_or_dash(value: float | None) -> str:
    """Four significant digits, or ``-`` for none."""
    return "-" if value is None else f"{value:.4g}"
