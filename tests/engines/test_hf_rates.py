"""Rates planned by a twin: those of the run itself, float for float, with nothing moved."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as torch_schedulers

from pilot.engines.hf.rates import measure_rates, planned_rates
from tests.engines.trainers import make_model, make_trainer

STEPS = 24


class Rates:
    """A callback that measures at the begin of the loop and notes what is used."""

    def __init__(self) -> None:
        from transformers import TrainerCallback

        outer = self
        self.used: list[list[float]] = []
        self.planned: Any = None

        class Callback(TrainerCallback):
            def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                optimizer = outer.trainer.optimizer.optimizer
                before = copy.deepcopy(outer.trainer.lr_scheduler.state_dict())
                groups = [dict(group, params=0) for group in optimizer.param_groups]
                drawn = torch.random.get_rng_state()
                outer.planned = measure_rates(outer.trainer, optimizer, 0, state.max_steps)
                assert str(outer.trainer.lr_scheduler.state_dict()) == str(before)
                assert [dict(group, params=0) for group in optimizer.param_groups] == groups
                assert torch.equal(torch.random.get_rng_state(), drawn)
                assert state.global_step == 0

            def on_pre_optimizer_step(
                self, args: Any, state: Any, control: Any, **more: Any
            ) -> None:
                groups = outer.trainer.optimizer.param_groups
                outer.used.append([float(group["lr"]) for group in groups])

        self.callback = Callback()

    def of(self, trainer: Any) -> Rates:
        """Train ``trainer`` to its end."""
        self.trainer = trainer
        trainer.add_callback(self.callback)
        trainer.train()
        return self


def rates_of(folder: Path, **arguments: Any) -> tuple[Rates, list[float]]:
    """A short run, and what could be planned before its loop."""
    values = {"max_steps": STEPS, "warmup_steps": 4, "learning_rate": 1e-2, **arguments}
    trainer = make_trainer(folder, **values)
    early = list(planned_rates(trainer, STEPS))
    return Rates().of(trainer), early


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("linear", {}),
        ("cosine", {"num_cycles": 2.5}),
        ("constant", {}),
        ("constant_with_warmup", {}),
        ("cosine_with_restarts", {"num_cycles": 3}),
        ("polynomial", {"power": 2.0, "lr_end": 1e-4}),
        ("inverse_sqrt", {"timescale": 10}),
        ("cosine_with_min_lr", {"min_lr": 1e-3}),
        ("cosine_with_min_lr", {"min_lr_rate": 0.1}),
        ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1, "warmup_lr_rate": 0.2}),
        ("warmup_stable_decay", {"num_decay_steps": 8, "decay_type": "1-sqrt"}),
        ("warmup_stable_decay", {"num_decay_steps": 8, "decay_type": "cosine"}),
    ],
)
def test_every_schedule_by_name(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    found, early = rates_of(tmp_path, lr_scheduler_type=name, lr_scheduler_kwargs=settings)
    rows = found.planned.rates.T.tolist()
    assert rows[:STEPS] == found.used and len(rows) == STEPS + 1
    assert early == [row[0] for row in found.used] and not found.planned.unknown


def adam(model: Any, *rates: float) -> torch.optim.Optimizer:
    """An optimizer with a group for each rate."""
    parameters = list(model.parameters())
    groups = [
        {"params": parameters[index :: len(rates)], "lr": rate} for index, rate in enumerate(rates)
    ]
    return torch.optim.AdamW(groups)


def counting() -> Callable[[int], float]:
    """A factor that counts its own calls: asking for it moves it."""
    calls = 0

    def factor(step: int) -> float:
        nonlocal calls
        calls += 1
        return 1.0 / calls

    return factor


OBJECTS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda o: torch_schedulers.LambdaLR(o, lambda k: 1.0 / (1 + k)),
    "lambda_per_group": lambda o: torch_schedulers.LambdaLR(
        o, [lambda k: 1.0 / (1 + k), lambda k: 0.5**k]
    ),
    "counting": lambda o: torch_schedulers.LambdaLR(o, counting()),
    "one_cycle": lambda o: torch_schedulers.OneCycleLR(o, max_lr=[0.1, 1.0], total_steps=STEPS),
    "steps": lambda o: torch_schedulers.StepLR(o, 5, 0.5),
    "exponential": lambda o: torch_schedulers.ExponentialLR(o, 0.9),
    "annealing": lambda o: torch_schedulers.CosineAnnealingLR(o, STEPS, eta_min=1e-5),
    "restarts": lambda o: torch_schedulers.CosineAnnealingWarmRestarts(o, 5, 2),
    "cyclic": lambda o: torch_schedulers.CyclicLR(o, 1e-4, 1e-2, 6, cycle_momentum=False),
    "multiplicative": lambda o: torch_schedulers.MultiplicativeLR(o, lambda k: 0.9),
    "sequence": lambda o: torch_schedulers.SequentialLR(
        o,
        [torch_schedulers.LinearLR(o, 0.1, 1.0, 4), torch_schedulers.CosineAnnealingLR(o, 20)],
        [4],
    ),
    "chain": lambda o: torch_schedulers.ChainedScheduler(
        [torch_schedulers.ConstantLR(o, 0.5, 3), torch_schedulers.ExponentialLR(o, 0.95)]
    ),
}


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_every_scheduler_that_is_given(tmp_path: Path, name: str) -> None:
    """Two groups with their own rates; also one whose factor counts its calls."""
    model = make_model()
    optimizer = adam(model, 1e-2, 1e-1)
    trainer = make_trainer(
        tmp_path, model=model, optimizers=(optimizer, OBJECTS[name](optimizer)), max_steps=STEPS
    )
    early = list(planned_rates(trainer, STEPS))
    found = Rates().of(trainer)
    assert found.planned.rates.T.tolist()[:STEPS] == found.used
    assert early == [row[0] for row in found.used]
    expected = name not in ("lambda_per_group", "counting")
    if name not in ("one_cycle", "annealing", "cyclic"):
        assert found.planned.is_proportional() == expected


def test_a_scheduler_that_the_users_method_makes(tmp_path: Path) -> None:
    from transformers import Trainer

    class Own(Trainer):
        def create_optimizer(self, *rest: Any) -> Any:
            if self.optimizer is None:
                self.optimizer = adam(self.model, 3e-3, 3e-2)
            return self.optimizer

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            """Asks the Trainer itself for the step."""
            if self.lr_scheduler is None:
                self.lr_scheduler = torch_schedulers.LambdaLR(
                    self.optimizer, lambda _: 1.0 - self.state.global_step / num_training_steps
                )
            return self.lr_scheduler

    trainer = make_trainer(tmp_path, kind=Own, max_steps=STEPS)
    assert planned_rates(trainer, STEPS) == ()  # nobody knows its optimizer yet
    found = Rates().of(trainer)
    assert trainer.lr_scheduler.last_epoch == STEPS
    assert found.planned.rates.T.tolist()[:STEPS] == found.used and found.used[0] == [3e-3, 3e-2]
    assert found.used[-1][0] < 1e-3


@pytest.mark.parametrize("name", ["reduce_lr_on_plateau", "greedy"])
def test_what_reacts_to_metrics_is_not_planned(tmp_path: Path, name: str) -> None:
    extra: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 8}
    found, early = rates_of(tmp_path, lr_scheduler_type=name, **extra)
    assert "reacts to metrics" in found.planned.unknown and early == []
    assert set(found.planned.rates.flatten().tolist()) == {1e-2}


def test_a_scheduler_that_ends_too_early(tmp_path: Path) -> None:
    model = make_model()
    optimizer = adam(model, 1e-2)
    schedule = torch_schedulers.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    trainer = make_trainer(tmp_path, model=model, optimizers=(optimizer, schedule), max_steps=STEPS)
    measured = measure_rates(trainer, optimizer, 0, STEPS)
    assert "raises after step 11: ValueError" in measured.raises and not measured.unknown
    assert math.isnan(measured.rates[0, 11]) and not math.isnan(measured.rates[0, 10])


def test_what_cannot_be_copied_says_so(tmp_path: Path) -> None:
    import threading

    class Locked(torch_schedulers.LambdaLR):
        lock: Any = None

    model = make_model()
    optimizer = adam(model, 1e-2)
    schedule = Locked(optimizer, lambda k: 1.0)
    schedule.lock = threading.Lock()
    trainer = make_trainer(tmp_path, model=model, optimizers=(optimizer, schedule))
    measured = measure_rates(trainer, optimizer, 0, STEPS)
    assert "Locked cannot be copied" in measured.unknown and measured.first_group[0] == 1e-2
