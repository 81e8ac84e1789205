"""Gate ``labels``: ids that exist, rows that fit, and something to learn from in every row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pilot.checks.common import plural, rows_text
from pilot.checks.registry import FAIL, WARN, CheckResult, not_measured, register
from pilot.gates import Gates
from pilot.records import Finding
from pilot.view import ArmView, PilotView

NAME = "labels"
SOURCE = "12 of 144 public fault reports; the model's own vocabulary and positions"
LIMIT = "ids below vocab_size, rows within max_positions, supervised tokens in every set"


@register(
    name=NAME,
    gate="labels",
    category="data",
    limit_source=SOURCE,
    cost="seconds: rows are read once before training",
)
def check(view: PilotView, gates: Gates, arm: ArmView) -> CheckResult:
    """Judge the label audit of every set.

    Fails on an id outside the vocabulary, on a row longer than the model's positions, on one that
    cannot be read or collated, and on a set without any supervised token; some rows without
    supervised tokens warn. Without an audit, or with audits of zero rows only, nothing was
    measured. The arm is not looked at.
    """
    audits = [a for a in view.survey.get("label_audit") or () if _says_something(a)]
    if not audits:
        return not_measured("no label audit of any row", LIMIT)
    found = [finding for audit in audits for finding in _judge(audit, view.survey)]
    checked = sum(int(a["num_rows_checked"]) for a in audits)
    total = sum(int(a["num_rows"]) for a in audits)
    fine = f"{checked} of {plural(total, 'row')} in {plural(len(audits), 'set')} checked"
    found.sort(key=lambda f: f.severity != FAIL)
    return CheckResult(
        measured=True,
        findings=tuple(found),
        sentence=found[0].sentence if found else fine,
        limit=LIMIT,
        numbers={"num_rows_checked": checked, "num_rows": total},
    )


def _says_something(audit: Mapping[str, Any]) -> bool:
    return int(audit["num_rows_checked"]) > 0 or int(audit.get("num_unreadable") or 0) > 0


def _judge(audit: Mapping[str, Any], survey: Mapping[str, Any]) -> Iterator[Finding]:
    vocab, positions = _of(survey.get("vocab_size")), survey.get("max_positions")
    rules = (
        (
            "bad_input_ids",
            f"with an input id outside the vocabulary{vocab}",
            "is the tokenizer the model's? resize the embeddings or repair the rows",
        ),
        (
            "bad_label_ids",
            f"with a label outside the vocabulary{vocab}",
            "labels are token ids or the ignored index: repair the rows",
        ),
        (
            "too_long",
            f"longer than the model's {positions} positions",
            "cut these rows, or lower batch.sequence_length",
        ),
    )
    for key, what, todo in rules:
        if int(audit.get(f"num_{key}") or 0):
            yield _finding(FAIL, audit, key, what, todo)
    if failed := int(audit.get("num_unreadable") or 0):
        why, total = str(audit.get("unreadable_why")), plural(int(audit["num_rows"]), "row")
        yield _found(
            FAIL,
            audit,
            "unreadable",
            f"{failed} of {total} cannot be read, or not be collated: {why}",
            "the full run breaks when it draws them: repair or drop these rows",
        )
    empty, checked = int(audit.get("num_no_labels") or 0), int(audit["num_rows_checked"])
    if checked and empty >= checked:
        todo = "the label mask hides everything: check the template and the mask"
        yield _finding(FAIL, audit, "no_labels", "without a supervised token: all of them", todo)
    elif empty:
        todo = "they cost time and teach nothing: drop them, or check truncation"
        yield _finding(WARN, audit, "no_labels", "without a supervised token", todo)


def _of(size: int | None) -> str:
    """`` of 2048``, or nothing: a negative id is wrong whatever the size."""
    return "" if size is None else f" of {size}"


def _finding(severity: str, audit: Mapping[str, Any], key: str, what: str, todo: str) -> Finding:
    count, checked = int(audit[f"num_{key}"]), int(audit["num_rows_checked"])
    text = f"{count} of {plural(checked, 'checked row')} {what}"
    return _found(severity, audit, key, text, todo)


def _found(severity: str, audit: Mapping[str, Any], key: str, text: str, todo: str) -> Finding:
    count, checked = int(audit[f"num_{key}"]), int(audit["num_rows_checked"])
    ids = [int(row) for row in audit.get(key) or ()]
    return Finding(
        check=NAME,
        severity=severity,
        category="data",
        sentence=f"{audit['set']}: {text} ({rows_text(ids, count)})",
        numbers={
            "set": str(audit["set"]),
            f"num_{key}": count,
            "row_ids": ids,
            "num_rows_checked": checked,
        },
        limit=LIMIT,
        limit_source=SOURCE,
        obj=f"{audit['set']}: {rows_text(ids, count)}",
        todo=todo,
    )
