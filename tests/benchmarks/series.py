"""How fast the series engine is, what it finds, and how often it is wrong on healthy runs.

    python -m tests.benchmarks.series [--traces FILE] [--positions 40]

FILE: one JSON object a line, gzipped or not, ``{"id": str, "loss": [step losses of a healthy
run]}``. Without it, synthetic healthy runs: a power law with heavy-tailed noise (Student t).
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from pilot.series import detect
from pilot.series.limits import BLOCK
from pilot.series.monitor import Monitor
from pilot.series.point import Point
from pilot.series.types import GRAD_NORM, LOSS, NOTE, Event, Series, Trace

Floats = npt.NDArray[np.float64]
BEFORE, SEED = 1000, 7
ONSET = 8 * BLOCK  # the start of a slow climb is estimated, at worst so much too early
STEPS = 50_000


@dataclass(frozen=True, kw_only=True)
class Injection:
    """A fault: what it does to the rest of a series, and how many steps there are to see it."""

    name: str
    apply: Callable[[Floats], Floats]
    within: int


def _add(size: float, count: int | None) -> Callable[[Floats], Floats]:
    def apply(rest: Floats) -> Floats:
        rest[:count] += size
        return rest

    return apply


def _scale(size: float) -> Callable[[Floats], Floats]:
    return lambda rest: rest * (1.0 + size)


def _slow(size: float) -> Callable[[Floats], Floats]:
    return lambda rest: rest * (1.0 + size * np.arange(len(rest)) / 1000.0)


def _nan(rest: Floats) -> Floats:
    rest[0] = np.nan
    return rest


def _bloom(rest: Floats) -> Floats:
    """Quiet for five steps, then twice the loss, and back over some twenty."""
    rest[5:] *= 1.0 + 1.2 * np.exp(-np.arange(len(rest) - 5) / 10.0)
    return rest


INJECTIONS = (
    Injection(name="NaN", apply=_nan, within=8),
    Injection(name="+1 nat single", apply=_add(1.0, 1), within=8),
    Injection(name="5 x +0.5", apply=_add(0.5, 5), within=24),
    Injection(name="BLOOM shape", apply=_bloom, within=24),
    Injection(name="+2 nats never recovers", apply=_add(2.0, None), within=96),
    Injection(name="+5 % shift", apply=_scale(0.05), within=128),
    Injection(name="+3 % shift", apply=_scale(0.03), within=128),
    Injection(name="+10 %/1000 slow", apply=_slow(0.1), within=1000),
)


def load(path: Path) -> list[Floats]:
    """The loss series of ``path``."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [np.array(json.loads(line)["loss"], dtype=np.float64) for line in text.splitlines()]


def synthetic(runs: int = 12, steps: int = 4000) -> list[Floats]:
    """Healthy runs by formula: 3 + 8 (1 + t / 20)^-0.7, noise 1 to 4 %, heavy-tailed."""
    rng = np.random.default_rng(SEED)
    base = 3.0 + 8.0 * (1.0 + np.arange(steps) / 20.0) ** -0.7
    sizes = np.linspace(0.01, 0.04, runs)
    return [base * (1.0 + s * rng.standard_t(4, steps) / np.sqrt(2.0)) for s in sizes]


def watch(losses: Floats) -> tuple[list[Event], list[tuple[int, Event]]]:
    """All events of a series, and those that opened or changed with the step at which they did."""
    monitor = Monitor(objective="lm")
    seen = [
        (step, event)
        for step, loss in enumerate(losses.tolist())
        for event in monitor.update(Point(step=step, loss=loss))
    ]
    monitor.finish()
    return list(monitor.events), seen


def healthy(traces: list[Floats]) -> None:
    """Prints events per 10,000 steps and the speed."""
    steps = sum(len(trace) for trace in traces)
    start = time.perf_counter()
    events = [event for trace in traces for event in watch(trace)[0]]
    took = time.perf_counter() - start
    print(f"healthy: {len(traces)} runs, {steps:,} steps, {1e6 * took / steps:.1f} us a step")
    for severity in ("note", "warn", "fail"):
        found = [event for event in events if event.severity == severity]
        kinds = sorted({event.kind for event in found})
        rate = 1e4 * len(found) / steps
        print(f"  {severity}: {len(found)} ({rate:.2f} in 10,000 steps) {', '.join(kinds)}")


def speed() -> None:
    """Prints what a whole series of 50,000 steps with a grad norm costs."""
    rng = np.random.default_rng(SEED)
    (loss,) = synthetic(runs=1, steps=STEPS)
    steps = np.arange(1, STEPS + 1)
    norms = np.exp(0.1 * rng.standard_normal(STEPS))
    train = {LOSS: Series(steps=steps, values=loss), GRAD_NORM: Series(steps=steps, values=norms)}
    start = time.perf_counter()
    detect(Trace(source="", format="", axis="steps", train=train))
    took = time.perf_counter() - start
    print(f"whole series: {STEPS:,} steps in {took:.2f} s, {1e6 * took / STEPS:.1f} us a step")


def inject(traces: list[Floats], positions: int) -> None:
    """Prints, per fault, how often an event and how often a warning starts, and how late."""
    rng = np.random.default_rng(SEED)
    print(f"{'fault':24} {'event':>8} {'warn/fail':>10} {'latency':>8} {'fail':>8}")
    for fault in INJECTIONS:
        delays: dict[str, list[int]] = {"event": [], "warn": [], "fail": []}
        for _ in range(positions):
            _one(traces, fault, rng, delays)
        late = f"{median(delays['warn']):.0f}" if delays["warn"] else "-"
        shares = [f"{len(delays[name])}/{positions}" for name in ("event", "warn", "fail")]
        print(f"{fault.name:24} {shares[0]:>8} {shares[1]:>10} {late:>8} {shares[2]:>8}")


def _one(
    traces: list[Floats],
    fault: Injection,
    rng: np.random.Generator,
    delays: dict[str, list[int]],
) -> None:
    fits = [trace for trace in traces if len(trace) > BEFORE + fault.within + 1]
    trace = fits[int(rng.integers(len(fits)))]
    at = int(rng.integers(BEFORE, len(trace) - fault.within))
    piece = trace[at - BEFORE : at + fault.within].copy()
    piece[BEFORE:] = fault.apply(piece[BEFORE:].copy())
    _, seen = watch(piece)
    new = [(step, event) for step, event in seen if step >= BEFORE <= event.first_step + ONSET]
    for name, found in (
        ("event", new),
        ("warn", [pair for pair in new if pair[1].severity != NOTE]),
        ("fail", [pair for pair in new if pair[1].severity == "fail"]),
    ):
        if found:
            delays[name].append(found[0][0] - BEFORE)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--positions", type=int, default=40)
    options = parser.parse_args()
    traces = load(options.traces) if options.traces else synthetic()
    speed()
    healthy(traces)
    inject(traces, options.positions)


if __name__ == "__main__":
    main()
