"""The table of learning rates on the bundled pairs: optimizer, rate, clipping, warm-up.

    python -m tests.benchmarks.learning_rates [--only adamw] [--steps 158] > table.md

Each line trains the default pilot's steps with pilot's own engine (one thread, seed 0) and
validates before step 1 and after the cool-down. The table stands in the bundled model's card; the
limits of ``conf/gates`` and the README's examples are chosen from it.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

import torch

from pilot.cli.compose import compose
from pilot.config import Config, validate
from pilot.data.representative import representative_order
from pilot.engines.base import Observer
from pilot.engines.native import NativeEngine
from pilot.recipe import RecipeHandle, find_module
from pilot.records import Resource, StepRecord
from pilot.schedule import full_schedule
from pilot.segments import cooldown_rate

ADAMW = [
    *(("adamw", rate, 1.0, 30) for rate in (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)),
    *(("adamw", rate, 1.0, 0) for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)),
    *(("adamw", rate, None, 30) for rate in (1e-3, 3e-3, 1e-2, 3e-2)),
    *(("adamw", rate, 1.0, 10) for rate in (1e-3, 3e-3, 1e-2, 3e-2)),
]
SGD = [
    *(("sgd", rate, None, 30) for rate in (0.1, 0.3, 1.0, 3.0)),
    *(("sgd", rate, 1.0, 30) for rate in (0.1, 0.3, 1.0, 3.0)),
    *(("sgd", rate, None, 0) for rate in (0.3, 1.0)),
    ("sgd", 1.0, 1.0, 0),
    ("sgd", 1.0, None, 10),
    ("sgd", 1.0, 1.0, 10),
]


class Watch(Observer):
    """Keeps the step records."""

    def __init__(self) -> None:
        self.steps: list[StepRecord] = []

    def on_step(self, record: StepRecord, resource: Resource) -> None:
        self.steps.append(record)

    @property
    def broken(self) -> bool:
        """Whether the last step is not finite."""
        return bool(self.steps) and not (self.steps[-1].finite_loss and self.steps[-1].finite_grads)


def line(optim: str, rate: float, limit: float | None, warmup: int, steps: int) -> str:
    """Train one setting and describe it as a line of the table."""
    words = [
        "+recipe=llama_ft",
        f"optim={optim}",
        f"optim.learning_rate={rate}",
        f"optim.max_grad_norm={'null' if limit is None else limit}",
        f"full_run.warmup_steps={warmup}",
    ]
    config = validate(compose(words, Path.cwd()).tree)
    engine, watch = make_engine(config, steps)
    before = engine.request_validation("before")[0].loss
    after = train(engine, watch, config, steps)
    losses = [r.loss for r in watch.steps if math.isfinite(r.loss)]
    norms = [r.grad_norm for r in watch.steps if math.isfinite(r.grad_norm)]
    end = f"{after:.3f}" if after is not None else f"not finite at step {watch.steps[-1].step}"
    clip = "off" if limit is None else f"{limit:g}"
    cells = (
        optim, f"{rate:g}", clip, str(warmup), f"{before:.3f}", end,
        f"{max(losses):.3g}", f"{statistics.median(norms):.2f}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def make_engine(config: Config, steps: int) -> tuple[NativeEngine, Watch]:
    """The engine over a representative order, as the pilot plans it."""
    handle = RecipeHandle(
        module_path=find_module(str(config.recipe["module"]), Path.cwd()),
        settings=config.recipe,
        sequence_length=config.batch.sequence_length,
        seed=0,
    )
    recipe = handle.build()
    facts = [recipe.facts(example) for example in recipe.train]
    names = sorted({fact.source for fact in facts})
    width = config.batch.micro_batch_size
    order = representative_order(
        (steps + config.pilot.cooldown_steps) * width,
        guaranteed_within=steps * width,
        num_tokens=torch.tensor([f.num_tokens for f in facts]).numpy(),
        source=torch.tensor([names.index(f.source) for f in facts]).numpy(),
        data_seed=0,
        micro_batch_size=width,
    )
    watch = Watch()
    return NativeEngine(recipe, config, order=order, first_step=1, observer=watch), watch


def train(engine: NativeEngine, watch: Watch, config: Config, steps: int) -> float | None:
    """Warm-up, peak and cool-down; the validation loss after it, or nothing when not finite."""
    schedule = full_schedule(config, len(engine.recipe.train))
    for step in range(1, steps + 1):
        engine.train_step(schedule.learning_rate_at(step))
        if watch.broken:
            return None
    count = config.pilot.cooldown_steps
    for index in range(1, count + 1):
        engine.train_step(cooldown_rate(schedule, steps, count, index))
        if watch.broken:
            return None
    loss = engine.request_validation("after")[0].loss
    return loss if math.isfinite(loss) else None


def main() -> None:
    """Print the table, a line as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("adamw", "sgd"))
    parser.add_argument("--steps", type=int, default=158)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| optimizer | rate | clip | warm-up steps | validation before | after the cool-down "
        "| largest training loss | median gradient norm |\n|---|---|---|---|---|---|---|---|"
    )
    for optim, rate, limit, warmup in (*ADAMW, *SGD):
        if options.only in (None, optim):
            print(line(optim, rate, limit, warmup, options.steps), flush=True)


if __name__ == "__main__":
    main()
