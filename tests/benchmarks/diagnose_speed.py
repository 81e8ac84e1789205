"""How long ``diagnose`` takes: two text logs of 100 MB, and a series of 50,000 steps.

Run: ``python -m tests.benchmarks.diagnose_speed [--megabytes 100]``. The logs are generated into a
temporary folder. Exit code 0 when every limit is met, else 1. The limit of the
50,000 steps grows with the number of steps, that of the text logs with their bytes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from pilot.diagnose.plot import draw
from pilot.diagnose.study import Study
from pilot.readers import registry
from pilot.series.detect import detect
from pilot.series.types import GRAD_NORM, LEARNING_RATE, LOSS, Series, Trace

MAX_READ_SECS_PER_100_MB = 10.0
MAX_SERIES_SECS = 3.0
SERIES_STEPS = 50_000
SEED = 0
T = TypeVar("T")


def losses(num: int) -> np.ndarray:
    """A healthy course: a power law with 1 % noise."""
    noise = np.random.default_rng(SEED).normal(1.0, 0.01, num)
    return (2.0 + 9.0 / np.sqrt(1.0 + np.arange(num) / 20.0)) * noise


def megatron_lines() -> Iterator[str]:
    """One line per iteration, among what a job prints besides."""
    course = losses(1_000_000)
    for step in range(1, len(course) + 1):
        yield (
            f" iteration {step:8d}/ 1000000 | consumed samples: {step * 512:12d} |"
            " elapsed time per iteration (ms): 812.4 | learning rate: 3.000000E-04 |"
            f" global batch size:   512 | lm loss: {course[step - 1]:.6E} | loss scale: 1.0 |"
            " grad norm: 0.412 | number of skipped iterations:   0 |"
            " number of nan iterations:   0 |\n"
        )
        if step % 10 == 0:
            yield "[Rank 0] memory (MB) | allocated: 31211.1 | reserved: 40010.0\n"


def nanogpt_lines() -> Iterator[str]:
    """An ``iter`` line per step and an evaluation every 500."""
    course = losses(3_000_000)
    for step, loss in enumerate(course):
        if step % 500 == 0:
            yield f"step {step}: train loss {loss:.4f}, val loss {loss + 0.05:.4f}\n"
        yield f"iter {step}: loss {loss:.4f}, time 312.52ms, mfu 41.20%\n"


def write(path: Path, lines: Iterator[str], num_bytes: int) -> None:
    """Write lines until the file has ``num_bytes``."""
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            written += file.write(line)
            if written >= num_bytes:
                return


def long_trace() -> Trace:
    """All three series at 50,000 steps."""
    steps = np.arange(1, SERIES_STEPS + 1, dtype=np.int64)
    grad = np.exp(np.random.default_rng(SEED + 1).normal(-1.0, 0.1, SERIES_STEPS))
    values = {LOSS: losses(SERIES_STEPS), GRAD_NORM: grad}
    values[LEARNING_RATE] = np.linspace(3e-4, 3e-5, SERIES_STEPS)
    train = {name: Series(steps=steps, values=column) for name, column in values.items()}
    return Trace(source="generated", format="generated", axis="steps", train=train, objective="lm")


def timed(name: str, limit_secs: float, work: Callable[[], T]) -> tuple[bool, T]:
    """Print the CPU seconds of ``work``, which do not depend on what else the machine does."""
    begin, begin_wall = time.process_time(), time.perf_counter()
    result = work()
    secs, wall = time.process_time() - begin, time.perf_counter() - begin_wall
    word = "met    " if secs <= limit_secs else "NOT MET"
    print(f"{word}  {name:<42} {secs:6.2f} CPU s (limit {limit_secs:g}), {wall:6.2f} s", flush=True)
    return secs <= limit_secs, result


def text_log(path: Path, megabytes: float) -> bool:
    """Read a text log, then judge it; each has its own limit."""
    limit = MAX_READ_SECS_PER_100_MB * megabytes / 100
    title = f"{path.stem} text log, {megabytes:g} MB, read"
    all_met, traces = timed(title, limit, lambda: registry.read(path))
    for trace in traces:
        num = len(trace.train[LOSS].steps)
        limit = MAX_SERIES_SECS * max(1.0, num / SERIES_STEPS)
        met, _ = timed(f"  its {num} points, judged", limit, lambda trace=trace: detect(trace))
        all_met = all_met and met
    return all_met


def main() -> int:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=float, default=100.0)
    megabytes = parser.parse_args().megabytes
    checked = []
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (("megatron", megatron_lines()), ("nanogpt", nanogpt_lines())):
            path = Path(folder) / f"{name}.log"
            write(path, lines, int(megabytes * 1e6))
            checked.append(text_log(path, megabytes))
            path.unlink()
        trace = long_trace()
        met, found = timed(f"{SERIES_STEPS} steps, judged", MAX_SERIES_SECS, lambda: detect(trace))
        study = Study(source="generated", path="generated", trace=trace, diagnosis=found)
        picture = Path(folder) / "out.png"
        drawn, _ = timed(
            f"{SERIES_STEPS} steps, drawn", MAX_SERIES_SECS, lambda: draw(study, picture)
        )
    return 0 if all([*checked, met, drawn]) else 1


if __name__ == "__main__":
    sys.exit(main())
