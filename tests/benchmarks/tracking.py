"""What logging costs on SQLite: pilot's way beside one raw ``log_batch`` of the same points.

    python -m tests.benchmarks.tracking [--arms 5] [--steps 1500] [--metrics 15] [--dir FOLDER]

Arm by arm in turns, so the machine's mood hits both alike, each into a store of its own on disk.
pilot's side is what a pilot does: points sent in chunks, the state kept in a file before and after.
CPU seconds are printed too: on a busy machine they say what the wall clock cannot. Nothing is
asserted; the aim is 8 s in all and at most 3 ms per step and arm.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pilot.tracking import send, store
from pilot.tracking.series import Point, rounded
from pilot.tracking.state import RunState, State

Timing = tuple[float, float]


def make_points(num_steps: int, num_metrics: int, seed: int) -> list[Point]:
    """Random walks, in the order of name and step."""
    walks = np.random.default_rng(seed).normal(size=(num_metrics, num_steps)).cumsum(axis=1)
    return [
        Point(f"train/metric_{metric:02d}", step + 1, rounded(walks[metric, step]), 0.05 * step)
        for metric in range(num_metrics)
        for step in range(num_steps)
    ]


def timed(work: Callable[[], Any]) -> Timing:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def send_ours(client: Any, folder: Path, points: list[Point], start_ms: int) -> Callable[[], None]:
    """The way of a pilot."""
    state = State(store="benchmark", start_ms=start_ms)
    run = state.arms["arm"] = RunState(run_id=new_run(client))
    target = send.Target(
        client=client,
        run=run,
        start_ms=start_ms,
        save=lambda: state.save(folder / "tracking.json"),
    )
    return lambda: send.send_series(target, points)


def send_raw(client: Any, points: list[Point], start_ms: int) -> Callable[[], None]:
    """One call, in the order in which a training loop makes the points."""
    from mlflow.entities import Metric

    run_id = new_run(client)
    by_step = sorted(points, key=lambda point: (point.step, point.name))

    def work() -> None:
        made = [Metric(p.name, p.value, start_ms + int(1000 * p.secs), p.step) for p in by_step]
        client.log_batch(run_id, metrics=made)

    return work


def new_run(client: Any) -> str:
    """A run of the default experiment."""
    return str(client.create_run("0").info.run_id)


def report(name: str, timings: list[Timing], num_steps: int, num_points: int) -> None:
    """One line: all arms together, per step and arm, per point."""
    wall, cpu = (sum(timing[kind] for timing in timings) for kind in (0, 1))
    per_step = 1000 * wall / (len(timings) * num_steps)
    print(
        f"{name:<14} {wall:6.2f} s in all, {per_step:.2f} ms per step and arm, "
        f"{1e6 * wall / num_points:.0f} us per point; CPU {cpu:.2f} s"
    )


def main() -> None:
    """Both ways in turns, then the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--metrics", type=int, default=15)
    parser.add_argument("--dir", type=Path, default=None, help="where the stores lie")
    options = parser.parse_args()
    start_ms = 1_700_000_000_000
    ours: list[Timing] = []
    raw: list[Timing] = []
    with tempfile.TemporaryDirectory(dir=options.dir) as name, store.quiet():
        folder = Path(name)
        mine = store.open_store(f"sqlite:///{folder}/ours.db")
        shutil.copy(folder / "ours.db", folder / "raw.db")
        plain = store.open_store(f"sqlite:///{folder}/raw.db")
        warm = make_points(20, options.metrics, 99)
        send_ours(mine, folder, warm, start_ms)()
        send_raw(plain, warm, start_ms)()
        for arm in range(options.arms):
            points = make_points(options.steps, options.metrics, arm)
            raw.append(timed(send_raw(plain, points, start_ms)))
            ours.append(timed(send_ours(mine, folder, points, start_ms)))
    num_points = options.arms * options.steps * options.metrics
    print(f"{options.arms} arms x {options.steps} steps x {options.metrics} metrics")
    report("pilot", ours, options.steps, num_points)
    report("one log_batch", raw, options.steps, num_points)
    ratios = [mine[0] / other[0] for mine, other in zip(ours, raw, strict=True)]
    print(f"pilot / log_batch: median {float(np.median(ratios)):.2f} of {len(ratios)} pairs")


if __name__ == "__main__":
    main()
