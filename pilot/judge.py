"""Judging: a pure function of a pilot's folder and the gates; the same bytes on every repetition.

``verdict.json`` (``schema_version`` 1):

| key                           | meaning                                                          |
|-------------------------------|------------------------------------------------------------------|
| ``verdict``, ``exit_code``    | ``GO`` 0, ``NO-GO`` 3, ``INCONCLUSIVE`` 4                        |
| ``why``, ``next``             | one sentence with the numbers; one command or action             |
| ``gates``                     | list: name, need, status, judged (before a waiver), sentence,    |
|                               | limit, limit_source, waived (reason or null), checks             |
| ``cause``                     | null, or category, sentence, evidence, known, no_cures           |
| ``remedy``                    | null, or override, arm, status, proven, sentence, judged,        |
|                               | not_judged                                                       |
| ``arms``                      | list: name, title, role, order, variable, value, baseline_value, |
|                               | follows, status, reason, num_steps, num_own_steps, fork_step,    |
|                               | num_cooldown_steps, num_attempts, final_loss, words, sentence,   |
|                               | difference to the baseline (value, se, num_examples; nats/token),|
|                               | effect (word, value, half_width, level of the interval,          |
|                               | reference_loss, basis, num, step)                                |
| ``margin``                    | sentence, stable_up_to, bad_from (factors of the rate), word     |
| ``noise``                     | source, sd, sd_steps, num_runs, seed_matters, sentence           |
| ``coverage``                  | sources, lengths (tokens), extremes, segments, validations:      |
|                               | planned and seen                                                 |
| ``cost``                      | num_steps, baseline_steps, ratio, saved (arm, num_steps, why),   |
|                               | secs, and per arm (secs by kind)                                 |
| ``not_measured``, ``warnings``| lists of sentences                                               |
| ``waived``                    | gate to reason                                                   |
| ``plan``                      | horizon, steps, segments, validations                            |
| ``fingerprint``               | what the verdict is bound to, as measured at the start           |

``result.json`` (``schema_version`` 1): ``checks`` (every check: gate, cost, measured, sentence,
limit, numbers), ``gates``, ``arms``, ``arm_gates`` (gate to status per other arm), ``validations``
(every set at every place, with the paired difference to ``before``), ``coverage``, ``cost``.
``findings.jsonl``: one ``Finding`` a line, those of the baseline. Floats have six significant
digits; one that is not finite is the string ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilot.arms.margin import margin_table
from pilot.arms.tables import arms_in_order, arms_table, noise_table
from pilot.cause import find_cause, find_remedy, judge_arm
from pilot.checks.coverage_table import coverage_table
from pilot.checks.registry import (
    WARN,
    CheckResult,
    absent_arm,
    all_checks,
    run_check,
)
from pilot.config import Config, find_mistakes
from pilot.errors import ConfigError, ExitCode, Mistake
from pilot.folder import BASELINE, PilotFolder
from pilot.gates import Gates
from pilot.jsonl import to_json, write_json, write_text
from pilot.records import Finding, Outcome
from pilot.report.markdown import render
from pilot.sentences import (
    next_action,
    not_measured_lines,
    restart_lines,
    warning_lines,
    why,
)
from pilot.tables import (
    checks_table,
    cost_table,
    gates_table,
    plan_summary,
    rounded,
    validations_table,
)
from pilot.verdict import (
    GO,
    INCONCLUSIVE,
    NO_GO,
    GateResult,
    blocking,
    decide,
    gate_results,
)
from pilot.view import PilotView

SCHEMA_VERSION = 1
_CODES = {GO: ExitCode.GO, NO_GO: ExitCode.NO_GO, INCONCLUSIVE: ExitCode.INCONCLUSIVE}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What judging gives: the findings and the contents of ``result.json`` and ``verdict.json``."""

    findings: tuple[Finding, ...]
    result: Mapping[str, Any]
    verdict: Mapping[str, Any]

    @property
    def word(self) -> str:
        """GO, NO-GO or INCONCLUSIVE."""
        return str(self.verdict["verdict"])

    @property
    def exit_code(self) -> ExitCode:
        """What the shell sees."""
        return _CODES[self.word]


def judge(view: PilotView, gates: Gates) -> Judgement:
    """Judge a pilot. Pure: reads no file, no clock and no model."""
    results = {info.name: run_check(info.name, view, gates) for info in all_checks()}
    judged = gate_results(gates, results)
    arms = arms_table(view)
    verdict = _verdict(view, gates, results, judged)
    outcome = view.baseline.outcome if view.baseline else None
    completed = outcome is not None and outcome.status == Outcome.COMPLETED
    tables = {
        "gates": gates_table(judged),
        "arms": arms,
        "margin": margin_table(
            view.plan.schedule.learning_rate,
            arms,
            is_sound=completed and verdict["verdict"] != NO_GO,
        ),
        "noise": noise_table(view),
        "coverage": coverage_table(view, view.baseline or absent_arm(view)),
        "cost": cost_table(view),
    }
    result = {
        "schema_version": SCHEMA_VERSION,
        "checks": checks_table(results),
        **tables,
        "arm_gates": _arm_gates(view, gates),
        "validations": validations_table(view),
    }
    return Judgement(
        findings=tuple(f for info in all_checks() for f in results[info.name].findings),
        result=_plain(result),
        verdict=_plain({**verdict, **tables, **_bound_to(view, gates)}),
    )


def _verdict(
    view: PilotView,
    gates: Gates,
    results: Mapping[str, CheckResult],
    judged: tuple[GateResult, ...],
) -> dict[str, Any]:
    """The verdict's own keys, first in the file."""
    gateless = [info.name for info in all_checks() if info.gate is None]
    num_warnings = sum(f.severity == WARN for n in gateless for f in results[n].findings)
    num_steps = len(view.baseline.steps) if view.baseline else 0
    word = decide(gates, judged, num_steps=num_steps, num_warnings=num_warnings)
    blockers = blocking(gates, judged)
    cause = find_cause(view, gates, blockers)
    remedy = find_remedy(view, gates, blockers)
    warnings = warning_lines(view, results, judged)
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": word,
        "exit_code": int(_CODES[word]),
        "why": why(word, judged, blockers, warnings),
        "next": next_action(word, view, blockers, remedy),
        "cause": dataclasses.asdict(cause) if cause else None,
        "remedy": dataclasses.asdict(remedy) if remedy else None,
        "not_measured": not_measured_lines(view, results, judged),
        "warnings": [*warnings, *restart_lines(view)],
    }


def _bound_to(view: PilotView, gates: Gates) -> dict[str, Any]:
    return {
        "waived": dict(sorted(gates.waive.items())),
        "plan": plan_summary(view),
        "fingerprint": view.fingerprint,
    }


def write(root: Path, judgement: Judgement) -> None:
    """Write findings.jsonl, result.json, verdict.json and report.md. Raises ``DiskFull``."""
    folder = PilotFolder(root)
    lines = [to_json(rounded(dataclasses.asdict(finding))) for finding in judgement.findings]
    write_text(folder.findings, "".join(line + "\n" for line in lines))
    write_json(folder.result, judgement.result)
    write_json(folder.verdict, judgement.verdict)
    write_text(folder.report, render(judgement.verdict, judgement.result))


def load_gates(view: PilotView, path: Path | None = None) -> Gates:
    """The gates of the folder's own configuration, or those of a YAML file.

    The file holds all gates, like ``conf/gates/default.yaml`` (a top-level ``gates:`` is allowed).

    Raises:
        ConfigError: with every mistake: unreadable, not YAML, unknown keys, values out of bounds.
    """
    tree = dict(view.config)
    if path is not None:
        data = _read_yaml(path)
        tree["gates"] = data["gates"] if set(data) == {"gates"} else data
    mistakes, config = find_mistakes(tree)
    mistakes = [m for m in mistakes if m.key.split(".")[0] == "gates"] if path else mistakes
    if mistakes:
        raise ConfigError(mistakes)
    return config.gates if isinstance(config, Config) else Gates.model_validate(tree["gates"])


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError([_file_mistake(path, f"must be readable YAML: {reason}")]) from error
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ConfigError([_file_mistake(path, "must hold the gates as key: value")])
    return data


def _file_mistake(path: Path, rule: str) -> Mistake:
    remedy = "copy conf/gates/default.yaml and change its limits"
    return Mistake(key="--gates", value=str(path), rule=rule, remedy=remedy)


def _plain(tree: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = rounded(tree)
    return plain


def _arm_gates(view: PilotView, gates: Gates) -> dict[str, dict[str, str]]:
    return {
        arm.job.arm: {g.name: g.judged for g in judge_arm(view, gates, arm) if g.checks}
        for arm in arms_in_order(view)
        if arm.job.arm != BASELINE
    }
