"""What a pilot's parent run holds, read from the folder: tags, params, numbers, files. Pure."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pilot.folder import PilotFolder
from pilot.plan import BEFORE
from pilot.report.colours import VERDICT_COLOURS
from pilot.report.curves import non_finite_steps
from pilot.report.layout import next_line
from pilot.report.words import clean, one_line
from pilot.tracking.hide import HIDDEN, hide_message, hide_text, is_secret_key
from pilot.tracking.names import free_name
from pilot.tracking.series import arm_secs, finite
from pilot.view import PilotView

MAX_PARAM_CHARS = 6000
PARENT_ROLE = "campaign"
ORDER_TAG = "pilot.order"
_MAX_TAG_CHARS = 1000
_NO_COLOUR = "#757575"
_RECORDS = (
    *("lineage.json", "steps.*.jsonl", "cooldown.*.jsonl", "validations.jsonl"),
    *("evidence.jsonl", "resources.jsonl"),
)
_MAY_QUOTE_DATA = ("outcome.json", "absence.json", "log.txt")


def run_name(verdict: Mapping[str, Any]) -> str:
    """For example ``NO-GO · e4f5a6b``: a run list shows about fifteen characters."""
    short = fingerprint(verdict)[:7]
    return f"{verdict['verdict']} · {short}" if short else str(verdict["verdict"])


def fingerprint(verdict: Mapping[str, Any]) -> str:
    """The hash of what the verdict is bound to, or an empty string."""
    parts = verdict.get("fingerprint") or {}
    return one_line(parts.get("short") or parts.get("hash") or "", 64)


def tags(view: PilotView, verdict: Mapping[str, Any], root: Path) -> dict[str, str]:
    """The tags of the parent; every one is set, so that an old value never stays."""
    cause, remedy = verdict.get("cause") or {}, verdict.get("remedy") or {}
    broken = non_finite_steps(view.baseline)
    count = sum(arm is not view.baseline for arm in view.arms.values())
    return clean_tags(
        {
            **shared_tags(view, verdict),
            "pilot.role": PARENT_ROLE,
            "pilot.why": verdict.get("why", ""),
            "pilot.next": next_line(verdict, root),
            "pilot.cause": _joined("{category}: {sentence}", cause),
            "pilot.remedy": _joined("{override} ({status})", remedy),
            "pilot.changed": f"{count} arm{'s' if count != 1 else ''}",
            ORDER_TAG: "-",
            "pilot.dir": root,
            "pilot.first_nonfinite_step": broken[0] if broken else "none",
            "mlflow.runName": run_name(verdict),
            "mlflow.runColor": VERDICT_COLOURS.get(str(verdict["verdict"]), _NO_COLOUR),
        }
    )


def _joined(form: str, parts: Mapping[str, Any]) -> str:
    """``form`` filled with what is known; ``none`` where there is nothing."""
    return form.format_map(defaultdict(str, parts)) if parts else "none"


def shared_tags(view: PilotView, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """The tags that parent and children have alike: each run can be found without the other."""
    return {
        "pilot.verdict": verdict["verdict"],
        "pilot.recipe": view.plan.recipe,
        "pilot.fingerprint": fingerprint(verdict) or "none",
        "mlflow.source.name": "python -m pilot",
        "mlflow.source.type": "LOCAL",
    }


def clean_tags(values: Mapping[str, Any]) -> dict[str, str]:
    """Tags on one line, of bounded length, with secrets hidden."""
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


def scalars(view: PilotView, verdict: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of the whole pilot, finite, six significant digits."""
    statuses = [gate.get("status") for gate in verdict.get("gates") or ()]
    cost, noise = verdict.get("cost") or {}, verdict.get("noise") or {}
    baseline = view.baseline
    final = baseline.validation(view.plan.final_validation) if baseline else None
    return finite(
        {
            "pilot/nonfinite_steps": len(non_finite_steps(baseline)),
            "pilot/final_loss": final.loss if final else None,
            "pilot/val_change": _validation_change(view),
            "pilot/steps": len(baseline.steps) if baseline else 0,
            "pilot/gates_failed": statuses.count("fail"),
            "pilot/gates_warned": statuses.count("warn"),
            "pilot/noise_sd": noise.get("sd"),
            "pilot/cost_steps": cost.get("num_steps"),
            "pilot/cost_ratio": cost.get("ratio"),
            "pilot/cost_secs": cost_secs(view),
        }
    )


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


def figure_files(folder: PilotFolder) -> dict[str, Path]:
    """The figures, by their name in the run."""
    return {f"figures/{path.name}": path for path in sorted(folder.figures.glob("*.png"))}


def record_files(folder: PilotFolder) -> dict[str, Path]:
    """Figures and the records of each arm; never checkpoints, never rows of data."""
    files = figure_files(folder)
    for pattern in _RECORDS:
        for path in sorted((folder.root / "arms").glob(f"*/{pattern}")):
            files[f"arms/{path.parent.name}/{path.name}"] = path
    return files


def dataset_facts(view: PilotView) -> dict[str, str]:
    """Name, digest and size of the training data; the digest covers sources and row lengths."""
    rows = view.rows
    digest = hashlib.sha256("\n".join(rows.source_names).encode())
    for array in (rows.num_tokens, rows.num_supervised_tokens, rows.source):
        digest.update(array.astype("<i8").tobytes())
    sources = [one_line(name, 60) for name in rows.source_names[:20]]
    profile = {"num_rows": len(rows.num_tokens), "num_tokens": int(rows.num_tokens.clip(0).sum())}
    return {
        "name": one_line(view.plan.recipe, 200),
        "digest": digest.hexdigest()[:16],
        "source": json.dumps({"sources": sources}),
        "profile": json.dumps(profile),
    }


def cost_secs(view: PilotView) -> float:
    """Measured seconds of all arms."""
    return sum(arm_secs(arm) for arm in view.arms.values())
