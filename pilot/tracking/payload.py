"""What a pilot's tracking run holds, read from the folder: tags, params, metrics, files. Pure.

Only finite numbers become metrics: a store keeps inf as 1.8e308 and a page leaves out a metric that
ends in NaN. Non-finite steps are counted instead; the full truth is in the records, which are sent
as files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pilot.folder import PilotFolder
from pilot.plan import BEFORE
from pilot.records import StepRecord
from pilot.report.figures import VERDICT_COLOURS, non_finite_steps
from pilot.report.layout import next_line
from pilot.report.words import clean, one_line
from pilot.tracking.hide import HIDDEN, hide_message, hide_text, is_secret_key
from pilot.view import ArmView, PilotView

MAX_METRIC_NAMES = 29  # a run's page stays readable and quick below thirty charts
MAX_PARAM_CHARS = 6000
_MAX_TAG_CHARS = 1000
_SERIES = {
    "train/loss": "loss",
    "train/grad_norm": "grad_norm",
    "train/clip_coef": "clip_coef",
    "train/relative_update": "relative_update",
    "train/learning_rate": "learning_rate",
}
_RECORDS = (
    *("steps.*.jsonl", "cooldown.*.jsonl", "validations.jsonl"),
    *("evidence.jsonl", "resources.jsonl"),
)
_MAY_QUOTE_DATA = ("outcome.json", "log.txt")


class Point(NamedTuple):
    """One value of a metric at a step, ``secs`` after the start of the arm."""

    name: str
    step: int
    value: float
    secs: float


def run_name(verdict: Mapping[str, Any]) -> str:
    """For example ``NO-GO · e4f5a6b``: a run list shows about fifteen characters."""
    short = fingerprint(verdict)[:7]
    return f"{verdict['verdict']} · {short}" if short else str(verdict["verdict"])


def fingerprint(verdict: Mapping[str, Any]) -> str:
    """The hash of what the verdict is bound to, or an empty string."""
    parts = verdict.get("fingerprint") or {}
    return one_line(parts.get("short") or parts.get("hash") or "", 64)


def tags(view: PilotView, verdict: Mapping[str, Any], root: Path) -> dict[str, str]:
    """The tags of the run; every one is set, so that an old value never stays."""
    cause, remedy = verdict.get("cause") or {}, verdict.get("remedy") or {}
    broken = non_finite_steps(view.baseline)
    values = {
        "pilot.verdict": verdict["verdict"],
        "pilot.role": "campaign",
        "pilot.why": verdict.get("why", ""),
        "pilot.next": next_line(verdict, root),
        "pilot.cause": f"{cause['category']}: {cause.get('sentence', '')}" if cause else "none",
        "pilot.remedy": f"{remedy['override']} ({remedy.get('status')})" if remedy else "none",
        "pilot.recipe": view.plan.recipe,
        "pilot.fingerprint": fingerprint(verdict) or "none",
        "pilot.dir": root,
        "pilot.first_nonfinite_step": broken[0] if broken else "none",
        "mlflow.runName": run_name(verdict),
        "mlflow.runColor": VERDICT_COLOURS.get(str(verdict["verdict"]), "#757575"),
        "mlflow.source.name": "python -m pilot",
        "mlflow.source.type": "LOCAL",
    }
    return {key: hide_message(one_line(text, _MAX_TAG_CHARS)) for key, text in values.items()}


def params(config: Mapping[str, Any]) -> dict[str, str]:
    """The resolved configuration, one param a leaf; secrets are replaced by ``<hidden>``."""
    found: dict[str, str] = {}
    for key, value in _leaves(config, ""):
        name = free_name(key, found)
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        if is_secret_key(key) and value not in (None, "") and not isinstance(value, (bool, int)):
            text = HIDDEN
        text = hide_text(clean(text)) or '""'
        found[name] = text if len(text) <= MAX_PARAM_CHARS else text[: MAX_PARAM_CHARS - 3] + "..."
    return found


def _leaves(value: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, (list, tuple)) and any(isinstance(v, (Mapping, list)) for v in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{prefix}.{index}")
    else:
        yield prefix, value


def free_name(text: str, taken: Iterable[str]) -> str:
    """A name that a store accepts (letters, digits, ``_-./:``), unlike those that are taken."""
    name = re.sub(r"[^\w\-./: ]", "_", one_line(text))
    name = re.sub(r"\.{2,}|/{2,}|^[/.]+|[/.]+$", "_", name)[:200] or "_"
    number, free, used = 2, name, set(taken)
    while free in used:
        free, number = f"{name}_{number}", number + 1
    return free


def series(view: PilotView) -> list[Point]:
    """The baseline's curves in the order of their steps, finite values only."""
    arm = view.baseline
    if arm is None:
        return []
    clock = _clock(arm)
    points = [
        Point(name, record.step, value, clock(record.step))
        for record in arm.steps
        for name, value in _step_values(record)
    ]
    points += [Point("cooldown/loss", r.step, r.loss, clock(r.step)) for r in arm.cooldown]
    names = _validation_names(view)
    points += [
        Point(names[v.name], v.step, v.loss, clock(v.step))
        for v in _last_validations(arm)
        if v.name in names
    ]
    return sorted((p for p in points if math.isfinite(p.value)), key=lambda p: (p.step, p.name))


def _step_values(record: StepRecord) -> Iterable[tuple[str, float]]:
    for name, attribute in _SERIES.items():
        yield name, float(getattr(record, attribute))


def _last_validations(arm: ArmView) -> Iterable[Any]:
    """One record a place and set: a later attempt repeats places, its record counts."""
    return {(v.at, v.name): v for v in arm.validations}.values()


def _validation_names(view: PilotView) -> dict[str, str]:
    """Metric name of each validation set, the primary first, as many as there is room for."""
    arm, names = view.baseline, dict[str, str]()
    room = MAX_METRIC_NAMES - len(_SERIES) - 16  # cooldown/loss and the scalars below
    for record in sorted(arm.validations if arm else (), key=lambda v: not v.primary):
        if record.name not in names and len(names) < room:
            clean_name = record.name.replace("/", "_")
            names[record.name] = free_name(f"val/{clean_name}", names.values())
    return names


def _clock(arm: ArmView) -> Any:
    """Seconds since the start at a step, from the recorded step times (1 ms a step without)."""
    steps = {r.step: r.secs for r in arm.resources if r.kind == "step" and math.isfinite(r.secs)}
    at = np.array(sorted(steps), dtype=np.int64)
    secs = np.cumsum([steps[step] for step in at])

    def clock(step: int) -> float:
        index = int(np.searchsorted(at, step, side="right"))
        return step * 1e-3 + (float(secs[index - 1]) if index else 0.0)

    return clock


def scalars(view: PilotView, verdict: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of the whole pilot, finite, six significant digits; at most fifteen."""
    broken = non_finite_steps(view.baseline)
    statuses = [gate.get("status") for gate in verdict.get("gates") or ()]
    values: dict[str, Any] = {
        "pilot/nonfinite_steps": len(broken),
        "pilot/first_nonfinite_step": broken[0] if broken else None,
        "pilot/steps": len(view.baseline.steps) if view.baseline else 0,
        "pilot/gates_failed": statuses.count("fail"),
        "pilot/gates_warned": statuses.count("warn"),
        "pilot/val_change": _validation_change(view),
    }
    for arm in verdict.get("arms") or ():
        name = free_name(f"arm/{arm.get('name')}/final_loss", values)
        values[name] = arm.get("final_loss")
    finite = {
        name: float(f"{value:.6g}")
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }
    return dict(list(finite.items())[:15])


def _validation_change(view: PilotView) -> float | None:
    """Final minus first loss of the primary validation set, nats per token."""
    arm = view.baseline
    before = arm.validation(BEFORE) if arm else None
    final = arm.validation(view.plan.final_validation) if arm else None
    return final.loss - before.loss if before and final else None


def text_files(folder: PilotFolder, log_text: bool) -> dict[str, Path]:
    """Files that are sent with secrets hidden, by their name in the run."""
    files = {path.name: path for path in (folder.verdict, folder.report)}
    if log_text:  # these may quote rows of the data
        for path in sorted((folder.root / "arms").glob("*/*")):
            if path.name in _MAY_QUOTE_DATA:
                files[f"arms/{path.parent.name}/{path.name}"] = path
    return {name: path for name, path in files.items() if path.is_file()}


def record_files(folder: PilotFolder) -> dict[str, Path]:
    """Figures and the records of each arm; never checkpoints, never rows of data."""
    files = {f"figures/{path.name}": path for path in sorted(folder.figures.glob("*.png"))}
    for pattern in _RECORDS:
        for path in sorted((folder.root / "arms").glob(f"*/{pattern}")):
            files[f"arms/{path.parent.name}/{path.name}"] = path
    return files
