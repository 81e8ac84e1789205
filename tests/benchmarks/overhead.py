"""What watching costs: the same steps with and without probe and records, in alternating pairs.

    python -m tests.benchmarks.overhead [--pairs 5] [--steps 40]

Both sides run in one process on the same rows, so the machine's mood hits both alike. Prints the
median of the pairwise ratios; nothing is asserted. With clipping on, the plain side computes the
global norm as well: that is the run's own work.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import yaml

from pilot.cli.compose import compose
from pilot.config import Config, validate
from pilot.engines.base import Observer
from pilot.engines.native import NativeEngine
from pilot.engines.recorder import Recorder
from pilot.folder import ArmFolder
from pilot.recipe import RecipeHandle, find_module


def make_engine(config: Config, order: np.ndarray, observer: Observer, probe: bool) -> NativeEngine:
    """An engine over the default recipe, with or without the probe."""
    handle = RecipeHandle(
        module_path=find_module(str(config.recipe["module"]), Path.cwd()),
        settings=config.recipe,
        sequence_length=config.batch.sequence_length,
        seed=0,
    )
    return NativeEngine(
        handle.build(), config, order=order, first_step=1, observer=observer, with_probe=probe
    )


def timed(engine: NativeEngine, steps: int) -> float:
    """Seconds of ``steps`` steps."""
    begun = time.perf_counter()
    for _ in range(steps):
        engine.train_step(1e-4)
    return time.perf_counter() - begun


def main() -> None:
    """Run the pairs and print one line each, then the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = validate(compose(["+recipe=llama_ft"], Path.cwd()).tree)
    total = (options.pairs + 1) * options.steps * config.batch.micro_batch_size
    order = np.random.default_rng(0).integers(1000, size=total)
    with tempfile.TemporaryDirectory() as place:
        folder = ArmFolder(Path(place))
        recorder = Recorder(folder, 1)
        plain = make_engine(config, order, Observer(), probe=False)
        watched = make_engine(config, order, recorder, probe=True)
        timed(plain, 3), timed(watched, 3)
        ratios = []
        for pair in range(options.pairs):
            first, second = (plain, watched) if pair % 2 == 0 else (watched, plain)
            secs = {id(first): timed(first, options.steps)}
            secs[id(second)] = timed(second, options.steps)
            ratios.append(secs[id(watched)] / secs[id(plain)])
            step_ms = 1000 * secs[id(plain)] / options.steps
            print(f"pair {pair + 1}: step {step_ms:.1f} ms, watched/plain = {ratios[-1]:.4f}")
        recorder.close()
    print(yaml.safe_dump({"median_ratio": round(statistics.median(ratios), 4)}).strip())


if __name__ == "__main__":
    main()
