"""What is in a store, read back with MLflow's own client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def client(path: Path) -> Any:
    """A client of the store."""
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{path}")


def runs(path: Path) -> list[Any]:
    """The parent, then its children in their order."""
    found = client(path)
    experiments = [e.experiment_id for e in found.search_experiments()]
    return sorted(found.search_runs(experiments), key=lambda r: r.data.tags["pilot.order"])


def points(path: Path, run_id: str) -> dict[str, list[tuple[int, float]]]:
    """Step and value of every metric."""
    found = client(path)
    names = found.get_run(run_id).data.metrics
    return {n: [(m.step, m.value) for m in found.get_metric_history(run_id, n)] for n in names}


def files(path: Path, run_id: str, folder: str | None = None) -> Iterator[str]:
    """The names of all artifacts."""
    for item in client(path).list_artifacts(run_id, folder):
        if item.is_dir:
            yield from files(path, run_id, item.path)
        else:
            yield item.path


def content(path: Path) -> list[Any]:
    """All that a person sees of the runs."""
    return [
        (
            run.info.run_name,
            run.info.status,
            {k: v for k, v in run.data.tags.items() if k != "mlflow.note.content"},
            run.data.params,
            points(path, run.info.run_id),
            sorted(files(path, run.info.run_id)),
            [i.dataset.digest for i in run.inputs.dataset_inputs],
        )
        for run in runs(path)
    ]
