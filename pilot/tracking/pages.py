"""Addresses of a store's pages, and the view of the run list that shows the verdicts. Pure."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any
from urllib.parse import quote

from pilot.tracking.payload import ORDER_TAG

# Without it the first visit lands among traces of language-model applications: no run is seen.
_TRAINING = "workflowType=machine_learning"
VIEW_NAME = "Pilot verdicts"
_VIEW_KEY = "pilot-verdicts"
VIEW_TAG = f"mlflow.sharedViewState.{_VIEW_KEY}"
EXPERIMENT_NOTE = (
    "One row per `python -m pilot`, verdict first; expand it for the arms. "
    f"**Views → {VIEW_NAME}** shows the columns of the verdict."
)


def run_page(experiment_id: str, run_id: str) -> str:
    """The page of one run."""
    return f"#/experiments/{experiment_id}/runs/{run_id}?{_TRAINING}"


def list_page(experiment_id: str) -> str:
    """The run list, newest first; without the filter that a page remembers from the last visit."""
    newest = f"orderByKey={quote('attributes.start_time')}&orderByAsc=false"
    return f"{_runs(experiment_id)}&searchFilter=&{newest}"


def arms_page(experiment_id: str, parent_id: str) -> str:
    """The charts of all arms of one pilot, in their order.

    Sorting by a tag takes the children out of their folded parent; a filter alone would not.
    """
    wanted = quote(f"tags.`mlflow.parentRunId` = '{parent_id}'", safe="")
    order = quote(f"tags.`{ORDER_TAG}`", safe="")
    return (
        f"{_runs(experiment_id)}&compareRunsMode=CHART&searchFilter={wanted}"
        f"&orderByKey={order}&orderByAsc=true"
    )


def view_page(experiment_id: str) -> str:
    """The run list with the verdict's columns."""
    return f"{_runs(experiment_id)}&viewStateShareKey={_VIEW_KEY}"


def _runs(experiment_id: str) -> str:
    return f"#/experiments/{experiment_id}/runs?{_TRAINING}"


def saved_view(now_ms: int) -> str:
    """The value of tag ``VIEW_TAG``: a run list with the verdict's columns.

    MLflow's private format: it may be ignored by another version, and nothing depends on it.
    """
    tags = ("pilot.verdict", "pilot.word", "pilot.changed", "pilot.why")
    metrics = ("pilot/final_loss", "pilot/difference")
    columns = [
        *(f"tags.`{name}`" for name in tags[:2]),
        *(f"metrics.`{name}`" for name in metrics),
        *(f"tags.`{name}`" for name in tags[2:]),
    ]
    state: dict[str, Any] = {
        "searchFilter": "",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": {"tags.`pilot.changed`": 260, "tags.`pilot.why`": 520},
        "runsPinned": [],
        "runsHidden": [],
        "viewMaximized": True,
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    view = {
        "name": VIEW_NAME,
        "createdAt": now_ms,
        "updatedAt": now_ms,
        "state": f"deflate;{packed}",
    }
    return json.dumps(view)
