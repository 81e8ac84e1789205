"""The mechanism: one rate converges, one explodes, and clipping makes that finite but not good."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pilot.cli.settings import check_recipe
from pilot.errors import ConfigError
from pilot.recipe import RecipeHandle, RowFacts

FILE = Path(__file__).resolve().parents[2] / "recipes" / "sine_mlp.py"
COMMON = {"name": "sine_mlp", "module": "sine_mlp", "objective": "regression"}
STEPS, COOLDOWN = 128, 36


def build(seed: int = 0, **settings: Any) -> Any:
    handle = RecipeHandle(
        module_path=FILE, settings={**COMMON, **settings}, sequence_length=None, seed=seed
    )
    return handle.build()


@dataclass
class Run:
    before: float
    peak: float
    after: float
    losses: list[float]
    norms: list[float]


def train(recipe: Any, rate: float, clip: float | None = None) -> Run:
    """A bare fp64 loop: full batch, constant rate, then the cool-down; ends when non-finite."""
    model = recipe.build_model("full").double()
    batch, held = recipe.collate(recipe.train), recipe.collate(recipe.validation["validation"])

    def validate() -> float:
        with torch.no_grad():
            return float(recipe.losses(model, held).mean())

    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    run = Run(before=validate(), peak=math.nan, after=math.nan, losses=[], norms=[])
    for step in range(1, STEPS + COOLDOWN + 1):
        left = min(1.0, (STEPS + COOLDOWN + 1 - step) / (COOLDOWN + 1))
        optimizer.param_groups[0]["lr"] = rate * left
        loss = recipe.losses(model, batch).mean()
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        run.losses.append(loss.item())
        run.norms.append(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()))
        if not math.isfinite(loss.item()):
            return run
        optimizer.step()
        if step == STEPS:
            run.peak = validate()
    run.after = validate()
    return run


@pytest.mark.parametrize("seed", [0, 1])
def test_a_low_rate_converges(seed: int) -> None:
    run = train(build(seed), 0.01)
    assert run.losses[0] == pytest.approx(0.065, abs=0.002)
    assert run.before == pytest.approx(0.065, abs=0.003)
    assert run.after == pytest.approx(0.027, abs=0.003)
    assert all(b < a for a, b in zip(run.losses, run.losses[1:], strict=False))
    assert max(run.norms) < 0.3  # never clipped at 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_a_high_rate_explodes(seed: int) -> None:
    run = train(build(seed), 1.0)
    assert next(i for i, loss in enumerate(run.losses, 1) if loss > 1e50) <= 25
    assert 50 < len(run.losses) <= 100
    assert not math.isfinite(run.losses[-1])
    assert all(map(math.isfinite, run.losses[:-1]))


@pytest.mark.parametrize("seed", [0, 1])
def test_clipping_keeps_it_finite_and_useless(seed: int) -> None:
    run = train(build(seed), 1.0, clip=1.0)
    assert len(run.losses) == STEPS + COOLDOWN
    assert max(run.losses) < 100
    assert max(run.norms) <= 1.0 + 1e-9
    assert run.peak > 2 * run.before
    assert run.after > 1.1 * run.before


def test_the_start_is_the_same_in_both_precisions() -> None:
    recipe = build()
    one, two = recipe.build_model("full"), recipe.build_model("full").double()
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a.double(), b)


def test_seeds() -> None:
    state = torch.get_rng_state()
    same, other = build(seed=0), build(seed=1)
    first = build(seed=0).build_model("full")[0].weight
    assert torch.equal(same.build_model("full")[0].weight, first)
    assert not torch.equal(other.build_model("full")[0].weight, first)
    assert same.train == other.train
    assert build(points_seed=5).train != same.train
    assert torch.equal(torch.get_rng_state(), state)


def test_points_and_facts() -> None:
    recipe = build(num_points=10, num_validation_points=20, x_max=2.0)
    held = recipe.validation["validation"]
    assert (len(recipe.train), len(held)) == (10, 20)
    assert not set(recipe.train) & set(held)
    assert all(abs(x) <= 2.0 and y == math.sin(x) for x, y in recipe.train + held)
    facts = RowFacts(source="sine", num_tokens=1, num_supervised_tokens=1)
    assert recipe.facts(recipe.train[0]) == facts


def test_losses_are_squared_errors() -> None:
    recipe = build()
    model = recipe.build_model("full").double()
    batch = recipe.collate(recipe.train[:5])
    expected = (model(batch["x"]) - batch["y"]).square().flatten()
    assert torch.equal(recipe.losses(model, batch), expected)
    assert recipe.num_supervised(batch).tolist() == [1] * 5
    single = recipe.losses(recipe.build_model("full"), batch)
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), expected, atol=1e-6)


def test_mini_and_random_start() -> None:
    assert [tuple(p.shape) for p in build().build_model("mini").parameters()][0] == (4, 1)
    recipe = build(start_loss=None, width=3)
    loss = recipe.losses(recipe.build_model("full"), recipe.collate(recipe.train)).mean()
    assert 0.2 < loss.item() < 1.0


def test_a_start_out_of_reach() -> None:
    with pytest.raises(ConfigError, match="recipe.start_loss = 1e-09"):
        build(start_loss=1e-9, width=1, num_points=4).build_model("full")


def test_settings() -> None:
    assert check_recipe(COMMON, FILE) == []
    wrong = {"width": 0, "num_points": 0, "num_validation_points": 1, "x_max": 0.0,
             "init_scale": -1.0, "start_loss": 0.0, "points_seed": -1}  # fmt: skip
    found = check_recipe({**COMMON, **wrong}, FILE)
    assert {mistake.key for mistake in found} == {f"recipe.{key}" for key in wrong}
    (unknown,) = check_recipe({**COMMON, "widht": 4}, FILE)
    assert unknown.key == "recipe.widht"
