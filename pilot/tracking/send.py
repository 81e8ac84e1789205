"""Sends the parts of one run; each part that arrived is noted at once and not sent again.

A part that was on its way when the pilot was killed is repeated so that nothing is there twice:
tags, equal params and files replace themselves, points that the store has already are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pilot.tracking import store
from pilot.tracking.hide import hide_message
from pilot.tracking.series import Point
from pilot.tracking.state import RunState

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True, kw_only=True)
class Target:
    """One run: where its parts go, what it has (``run``), and how that is kept (``save``)."""

    client: MlflowClient
    run: RunState
    start_ms: int
    save: Callable[[], None]


def send_params(target: Target, params: Mapping[str, str]) -> None:
    """The configuration, once: a store refuses to change a param."""
    if not target.run.params_sent:
        store.send_params(target.client, target.run.run_id, params)
        target.run.params_sent = True
        target.save()


def send_series(target: Target, points: Sequence[Point]) -> None:
    """The points that the run lacks; ``points`` are in the order of name and step."""
    run, client = target.run, target.client
    missing = [p for p in points if p.step > run.metrics.get(p.name, -1)]
    if run.is_sending:
        names = sorted({point.name for point in missing})
        stored = store.stored_steps(client, run.run_id, names)
        missing = [p for p in missing if p.step not in stored.get(p.name, ())]
    elif missing:
        run.is_sending = True
        target.save()
    for first in range(0, len(missing), store.CHUNK):
        chunk = missing[first : first + store.CHUNK]
        store.send_points(client, run.run_id, chunk, target.start_ms)
    if run.is_sending:
        run.metrics.update({point.name: point.step for point in points})
        run.is_sending = False
        target.save()


def send_scalars(target: Target, values: Mapping[str, float], secs: float) -> None:
    """The numbers that changed, ``secs`` after the start; judged again, a later stamp wins.

    At step 0: a page draws a metric that has no other step as bars, one a run, else as a dot.
    """
    run = target.run
    news = {name: value for name, value in values.items() if run.scalars.get(name) != value}
    if news:
        at = secs + 1e-3 * run.round
        points = [Point(name, 0, value, at) for name, value in news.items()]
        store.send_points(target.client, run.run_id, points, target.start_ms)
        run.scalars.update(news)
        run.round += 1
        target.save()


def send_dataset(target: Target, facts: Mapping[str, Any]) -> None:
    """Name and digest of the training data, once."""
    if not target.run.dataset_sent:
        store.send_dataset(target.client, target.run.run_id, facts)
        target.run.dataset_sent = True
        target.save()


def send_files(target: Target, files: Mapping[str, Path], texts: Mapping[str, Path]) -> None:
    """Files as they are, texts with secrets hidden; only those whose content changed."""
    run, news = target.run, False
    for name, path in {**texts, **files}.items():
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if run.artifacts.get(name) == digest:
            continue
        if name in texts:
            text = data.decode("utf-8", errors="replace")
            target.client.log_text(run.run_id, hide_message(text), name)
        else:
            parent = name.rpartition("/")[0]
            target.client.log_artifact(run.run_id, str(path), parent or None)
        run.artifacts[name], news = digest, True
    if news:
        target.save()
