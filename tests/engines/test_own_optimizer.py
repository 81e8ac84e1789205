"""A recipe's own optimizer and scheduler: groups, rates, exact states, contradictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from pilot import checkpoint
from pilot.config import Config
from pilot.engines.base import Program, StepRequest
from pilot.engines.contract import structure_mistakes
from pilot.engines.native import NativeEngine
from pilot.engines.native_workload import NativeWorkload
from pilot.engines.own_optimizer import own_rates, planned_rates, rate_mistakes
from pilot.engines.state import copy_state
from pilot.errors import ConfigError, RecipeFailure
from pilot.experiments import determinism, movement
from pilot.records import Outcome
from pilot.survey import require_planned
from tests.recipes_for_tests import TinyRecipe
from tests.trees import config_tree

Make = Callable[..., NativeEngine]
OWN = {"_target_": None, "learning_rate": 0.02}


class Grouped(TinyRecipe):
    """Two groups, the second at a tenth of the rate; arguments come from the section."""

    def build_optimizer(self, model: Any, optim: Any) -> torch.optim.Optimizer:
        rate = optim["learning_rate"]
        groups = [
            {"params": model.head.parameters(), "lr": rate},
            {"params": model.embed.parameters(), "lr": 0.1 * rate},
        ]
        return torch.optim.AdamW(groups, weight_decay=optim["weight_decay"])


class Scheduled(Grouped):
    """A warm-up, then a step down, by a function: nothing of it can be saved."""

    def build_scheduler(self, optimizer: Any, num_steps: int) -> Any:
        self.num_steps = num_steps
        return lr_scheduler.LambdaLR(
            optimizer, lambda done: min(1.0, (done + 1) / 4) * (0.5 if done >= 8 else 1.0)
        )


def config(**sections: Any) -> Config:
    return Config.model_validate(config_tree(**{"optim": OWN, **sections}))


def train(engine: NativeEngine, last: int, **request: Any) -> list[Any]:
    """Up to step ``last`` at the rate 0.02, or as requested."""

    def program() -> Program:
        while engine.step < last:
            yield StepRequest(**{"learning_rate": 0.02, **request})
        engine.flush()
        return Outcome(status=Outcome.COMPLETED, last_step=last)

    engine.run(program())
    return engine.observer.steps  # type: ignore[attr-defined,no-any-return]


def weights(engine: NativeEngine) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in engine.model.parameters()])


def test_groups_keep_their_rates_relative_to_the_first(make_engine: Make) -> None:
    engine = make_engine(Grouped(dropout=0.0), optim={**OWN, "weight_decay": 0.3})
    engine.train_step(0.01)
    assert [g["lr"] for g in engine.optimizer.param_groups] == [0.01, pytest.approx(0.001)]
    assert {g["weight_decay"] for g in engine.optimizer.param_groups} == {0.3}
    engine.flush()
    assert engine.observer.steps[0].learning_rate == 0.01  # type: ignore[attr-defined]


def test_a_run_of_plain_pytorch(make_engine: Make) -> None:
    """The same steps with the same objects, by hand."""
    engine = make_engine(Scheduled(dropout=0.0), optim={**OWN, "max_grad_norm": 0.2})
    recipe: Any = Scheduled(dropout=0.0)
    model = engine.recipe.build_model("full")
    model.load_state_dict({k: v.clone() for k, v in engine.model.state_dict().items()})
    optimizer = recipe.build_optimizer(model, {"learning_rate": 0.02, "weight_decay": 0.0})
    scheduler = recipe.build_scheduler(optimizer, 400)
    rates = []
    for step in range(12):
        batch = recipe.collate(
            [recipe.train[int(i)] for i in engine.order[8 * step : 8 * step + 8]]
        )
        loss = recipe.losses(model, batch).sum() / recipe.num_supervised(batch).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.2)
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    records = train(engine, 12)
    assert [r.learning_rate for r in records] == rates and len(set(rates)) == 4
    expected = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert torch.equal(weights(engine), expected)
    assert engine.recipe.own.num_steps == 400  # the full run's length


def test_a_forced_rate_leaves_the_scheduler_where_it_is(make_engine: Make) -> None:
    straight = make_engine(Scheduled(dropout=0.0), optim=OWN)
    rates = [r.learning_rate for r in train(straight, 8)]
    engine = make_engine(Scheduled(dropout=0.0), optim=OWN)
    train(engine, 2, learning_rate=0.5, forced=True)
    assert [g["lr"] for g in engine.optimizer.param_groups] == [0.02 / 4, pytest.approx(0.002 / 4)]
    found = [r.learning_rate for r in train(engine, 6)]
    assert found == [0.5, 0.5, *rates[:4]]


SCHEDULERS: dict[str, Callable[[Any, int], Any]] = {
    "lambda": lambda o, n: lr_scheduler.LambdaLR(o, lambda k: 1.0 / (1 + k)),
    "step": lambda o, n: lr_scheduler.StepLR(o, 3, gamma=0.5),
    "multi_step": lambda o, n: lr_scheduler.MultiStepLR(o, [2, 5]),
    "one_cycle": lambda o, n: lr_scheduler.OneCycleLR(
        o, [g["lr"] for g in o.param_groups], total_steps=n
    ),
    "restarts": lambda o, n: lr_scheduler.CosineAnnealingWarmRestarts(o, 5),
    "sequence": lambda o, n: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.LinearLR(o, 0.1, 1.0, 4), lr_scheduler.CosineAnnealingLR(o, n)],
        milestones=[4],
    ),
    "chained": lambda o, n: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.5, 3), lr_scheduler.ExponentialLR(o, 0.9)], optimizer=o
    ),
}


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_a_resumed_run_has_the_same_rates_to_the_bit(
    make_engine: Make, tmp_path: Path, name: str
) -> None:
    """Through a file, as a killed arm does it: what a scheduler holds must be loadable."""

    class Recipe(Grouped):
        def build_scheduler(self, optimizer: Any, num_steps: int) -> Any:
            return SCHEDULERS[name](optimizer, num_steps)

    sections: dict[str, Any] = {"optim": {**OWN, "max_grad_norm": 0.5}}
    straight = make_engine(Recipe(dropout=0.5), **sections)
    expected = train(straight, 12)
    first = make_engine(Recipe(dropout=0.5), **sections)
    train(first, 5)
    checkpoint.save(tmp_path, 5, first.snapshot(), reasons=())
    found = checkpoint.load_newest(tmp_path)
    assert found is not None
    resumed = make_engine(Recipe(dropout=0.5), **sections)
    resumed.restore(found[1])
    assert train(resumed, 12) == expected[5:]
    assert torch.equal(weights(resumed), weights(straight))
    planned = planned_rates(Recipe(), config(**sections), straight.model, 400, first_steps=12)
    assert [r.learning_rate for r in expected] == pytest.approx(planned[0].tolist(), rel=1e-12)
    assert rate_mistakes(Recipe(), config(**sections), straight.model, 400) == []


def test_replays_and_snapshots_leave_the_rates_alone(make_engine: Make) -> None:
    engine = make_engine(Scheduled(dropout=0.5), optim=OWN)
    expected = train(make_engine(Scheduled(dropout=0.5), optim=OWN), 6)
    engine = make_engine(Scheduled(dropout=0.5), optim=OWN)
    train(engine, 3)
    evidence = determinism.measure(engine, engine.rows_of(4))
    assert evidence.values["relative_spread"] == 0.0 and evidence.values["max_param_diff"] == 0.0
    state = copy_state(engine.snapshot())
    train(engine, 5)
    engine.restore(state)
    engine.observer.steps.clear()  # type: ignore[attr-defined]
    assert train(engine, 6) == expected[3:]


def test_an_optimizer_that_misses_a_tensor_is_seen(make_engine: Make) -> None:
    """Gradients of what it misses must not pile up in the norm either."""

    class Half(TinyRecipe):
        def build_optimizer(self, model: Any, optim: Any) -> torch.optim.Optimizer:
            return torch.optim.SGD(model.head.parameters(), lr=optim["learning_rate"])

    engine = make_engine(Half(dropout=0.0), optim=OWN)
    before = movement.start_weights(engine)
    records = train(engine, 6)
    still = movement.measure(engine, before).values["still"]
    assert [row["name"] for row in still] == ["embed.weight"]
    assert records[-1].grad_norm < 2 * records[0].grad_norm


@pytest.mark.parametrize(
    ("groups", "rule"),
    [
        (lambda m, r: [{"params": m.parameters(), "lr": 1e-3}], "must be optim.learning_rate"),
        (lambda m, r: [{"params": m.parameters(), "lr": r / 2}], "must be optim.learning_rate"),
        (
            lambda m, r: [
                {"params": m.head.parameters(), "lr": r},
                {"params": m.embed.parameters(), "lr": 1e-3},
            ],
            "group 1 must follow",
        ),
    ],
    ids=["fixed", "half", "second_fixed"],
)
def test_a_group_that_an_arm_would_not_change_is_named(
    make_engine: Make, groups: Any, rule: str
) -> None:
    class Fixed(TinyRecipe):
        def build_optimizer(self, model: Any, optim: Any) -> torch.optim.Optimizer:
            return torch.optim.SGD(groups(model, optim["learning_rate"]), lr=0.1)

    engine = make_engine(Fixed(), optim=OWN)
    found = rate_mistakes(Fixed(), config(), engine.model, 400)
    assert len(found) == 1 and rule in found[0].rule


def test_a_scheduler_with_rates_of_its_own_is_named(make_engine: Make) -> None:
    class Fixed(Grouped):
        def build_scheduler(self, optimizer: Any, num_steps: int) -> Any:
            return lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=num_steps)

    engine = make_engine(Fixed(), optim=OWN)
    (found,) = rate_mistakes(Fixed(), config(), engine.model, 400)
    assert found.key == "build_scheduler" and "must follow optim.learning_rate" in found.rule


def test_the_plan_must_know_the_scheduler(make_engine: Make) -> None:
    """``full_run`` describes it, or the survey says where the two part."""

    class Same(TinyRecipe):
        def build_scheduler(self, optimizer: Any, num_steps: int) -> Any:
            from transformers import get_cosine_schedule_with_warmup

            return get_cosine_schedule_with_warmup(optimizer, 5, num_steps)

    plain = Config.model_validate(config_tree())
    model = TinyRecipe().build_model("full")
    assert NativeWorkload(Same(), plain, Path("x.py")).model_mistakes(model) == []
    rates = own_rates(Same(), plain, model, 400)
    assert rates is not None and rates.rates.shape == (1, 401)
    require_planned(rates, plain, 64)
    other = own_rates(Scheduled(), config(), model, 400)
    assert other is not None
    with pytest.raises(ConfigError, match="the rate of step 1 is 0, the scheduler's is 0.005"):
        require_planned(other, config(), 64)
    assert own_rates(TinyRecipe(), plain, model, 400) is None


def test_measuring_the_rates_moves_nothing() -> None:
    torch.manual_seed(3)
    model = TinyRecipe().build_model("full")
    before = torch.get_rng_state()

    class Random(Scheduled):
        def build_optimizer(self, model: Any, optim: Any) -> torch.optim.Optimizer:
            torch.rand(5)
            return super().build_optimizer(model, optim)

    planned_rates(Random(), config(), model, 50)
    rate_mistakes(Random(), config(), model, 50)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("recipe", "target", "rule"),
    [
        (Grouped, "torch.optim.AdamW", "only one of the two"),
        (TinyRecipe, None, "has no build_optimizer"),
    ],
)
def test_exactly_one_of_recipe_and_section_chooses(recipe: Any, target: Any, rule: str) -> None:
    optim = {"_target_": target, "learning_rate": 0.1}
    (found,) = structure_mistakes(recipe(), config(optim=optim))
    assert found.key == "optim._target_" and rule in found.rule


@pytest.mark.parametrize(
    ("method", "value", "words"),
    [
        ("build_optimizer", lambda model, optim: None, "must return a torch.optim.Optimizer"),
        (
            "build_optimizer",
            lambda model, optim: torch.optim.LBFGS(model.parameters()),
            "must not need a closure",
        ),
        ("build_scheduler", lambda optimizer, n: 0.5, "must return a learning-rate scheduler"),
        (
            "build_scheduler",
            lambda optimizer, n: lr_scheduler.ReduceLROnPlateau(optimizer),
            "must not wait for a validation loss",
        ),
        (
            "build_scheduler",
            lambda optimizer, n: lr_scheduler.StepLR(
                torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1), 3
            ),
            "must schedule the optimizer that it is given",
        ),
    ],
    ids=["none", "lbfgs", "number", "plateau", "another"],
)
def test_what_cannot_be_used_is_named(
    make_engine: Make, method: str, value: Any, words: str
) -> None:
    recipe: Any = Grouped(dropout=0.0)
    setattr(recipe, method, value)
    with pytest.raises(RecipeFailure, match=words):
        make_engine(recipe, optim=OWN)
