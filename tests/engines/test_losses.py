"""The ways to give a loss: the step of plain PyTorch, whatever the micro-batches hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pilot.engines.guard import ContractError
from pilot.engines.native import NativeEngine
from pilot.errors import RecipeFailure
from tests.recipes_for_tests import TinyRecipe

Make = Callable[..., NativeEngine]
SPLITS = [(8, 1), (4, 2), (3, 3)]


class Bare:
    """The tiny recipe with nothing but what is required; ``loss`` returns a pair."""

    def __init__(self) -> None:
        self._whole = TinyRecipe(dropout=0.0)
        self.train, self.validation = self._whole.train, self._whole.validation["validation"]

    def build_model(self) -> torch.nn.Module:
        return self._whole.build_model("full")

    def collate(self, examples: Any) -> Any:
        return self._whole.collate(examples)

    def loss(self, model: torch.nn.Module, batch: Any) -> Any:
        count = (batch["labels"][:, 1:] != -100).sum()
        return self._whole.losses(model, batch).sum(), count


class Mean(Bare):
    """A mean per token; micro-batches are weighted by their tokens."""

    def loss(self, model: torch.nn.Module, batch: Any) -> Any:
        total, count = super().loss(model, batch)
        return total / count

    def num_supervised(self, batch: Any) -> torch.Tensor:
        return self._whole.num_supervised(batch)


class RowMean(Bare):
    """A mean over rows, of each row's own mean: micro-batches are weighted by their rows."""

    def loss(self, model: torch.nn.Module, batch: Any) -> Any:
        return (self._whole.losses(model, batch) / self._whole.num_supervised(batch)).mean()


class RowSums(Bare):
    """One number per row and no count: each row is a unit."""

    loss = None  # type: ignore[assignment]

    def losses(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        return self._whole.losses(model, batch)


def steps(engine: NativeEngine, count: int) -> list[Any]:
    for _ in range(count):
        engine.train_step(0.1)
    engine.flush()
    return engine.observer.steps  # type: ignore[attr-defined,no-any-return]


def weights(engine: NativeEngine) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in engine.model.parameters()])


def batch_of(size: int, accumulate: int) -> dict[str, int]:
    return {"micro_batch_size": size, "grad_accum_steps": accumulate}


@pytest.mark.parametrize("kind", [Bare, Mean])
@pytest.mark.parametrize(("size", "accumulate"), SPLITS)
def test_a_pair_and_a_weighted_mean_are_the_token_weighted_step(
    make_engine: Make, kind: Any, size: int, accumulate: int
) -> None:
    """Rows have unequal token counts: a plain mean of means would be another run."""
    sections = {"batch": batch_of(size, accumulate), "precision": "fp64"}
    optim = {"max_grad_norm": 0.2}
    one = make_engine(TinyRecipe(dropout=0.0), optim=optim, **sections)
    other = make_engine(kind(), optim=optim, **sections)
    for a, b in zip(steps(one, 3), steps(other, 3), strict=True):
        for name in ("loss", "grad_norm", "clip_coef", "relative_update"):
            assert getattr(b, name) == pytest.approx(getattr(a, name), rel=1e-12), name
        for name in ("num_supervised_tokens", "num_tokens", "longest_tokens", "source_counts"):
            assert getattr(b, name) == getattr(a, name), name
    assert torch.allclose(weights(one), weights(other), rtol=0, atol=1e-14)


def test_one_micro_batch_is_the_users_own_mean_to_the_bit(make_engine: Make) -> None:
    engine = make_engine(Mean())
    recipe, rows = engine.recipe, [int(i) for i in engine.order[:8]]
    batch = recipe.collate(recipe.examples(rows))
    own = recipe.loss(engine.model, batch)
    grads = torch.autograd.grad(own, list(engine.model.parameters()))
    params = list(engine.model.parameters())
    after = [torch.add(p.detach(), g, alpha=-0.1) for p, g in zip(params, grads, strict=True)]
    assert steps(engine, 1)[0].loss == float(own.detach())
    assert torch.equal(weights(engine), torch.cat([a.reshape(-1) for a in after]))


@pytest.mark.parametrize("kind", [RowMean, RowSums])
def test_without_counts_a_row_is_a_unit(make_engine: Make, kind: Any) -> None:
    whole = make_engine(kind(), batch=batch_of(9, 1), precision="fp64")
    split = make_engine(kind(), batch=batch_of(3, 3), precision="fp64")
    one, many = steps(whole, 2)[-1], steps(split, 2)[-1]
    assert many.num_supervised_tokens == one.num_supervised_tokens == 9
    assert many.loss == pytest.approx(one.loss, rel=1e-12)
    assert many.grad_norm == pytest.approx(one.grad_norm, rel=1e-12)


def test_fp16_scales_a_pair_like_everything_else(make_engine: Make) -> None:
    sections = {"batch": batch_of(3, 3), "optim": {"max_grad_norm": 0.2}}
    exact, scaled = (
        make_engine(Bare(), **sections),
        make_engine(Bare(), precision="fp16", **sections),
    )
    a, b = steps(exact, 2), steps(scaled, 2)
    assert b[0].loss_scale == 65536.0
    assert b[0].grad_norm == pytest.approx(a[0].grad_norm, rel=1e-2)


@pytest.mark.parametrize("kind", [Bare, Mean])
def test_validation_is_one_row_at_a_time(make_engine: Make, kind: Any) -> None:
    pilot = {"validation_rows": 8}
    one = make_engine(TinyRecipe(dropout=0.0), pilot=pilot).request_validation("x")[0]
    other = make_engine(kind(), pilot=pilot).request_validation("x")[0]
    assert other.token_counts == one.token_counts and other.name == "validation"
    assert other.loss_sums == pytest.approx(one.loss_sums, rel=1e-5)


def test_a_micro_batch_without_tokens_counts_for_nothing(make_engine: Make) -> None:
    """The mean of no token is no number; the step's loss has other tokens and is one."""

    class Masked(Mean):
        def collate(self, examples: Any) -> Any:
            batch = super().collate(examples)
            if examples[0] is self.train[order[0]]:
                batch["labels"] = torch.full_like(batch["labels"], -100)
            return batch

    engine = make_engine(Masked(), batch=batch_of(4, 2), precision="fp64")
    order = [int(i) for i in engine.order]
    record = steps(engine, 1)[0]
    batch = engine.recipe.collate(engine.recipe.examples(order[4:8]))
    assert record.num_supervised_tokens == int(engine.recipe.num_supervised(batch).sum())
    assert math.isfinite(record.loss) and record.finite_grads


@pytest.mark.parametrize("kind", [Bare, Mean])
def test_no_supervised_token_at_all_is_nan(make_engine: Make, kind: Any) -> None:
    class Masked(kind):  # type: ignore[misc, valid-type]
        def collate(self, examples: Any) -> Any:
            batch = super().collate(examples)
            return {**batch, "labels": torch.full_like(batch["labels"], -100)}

    record = steps(make_engine(Masked(), batch=batch_of(4, 2)), 1)[0]
    assert math.isnan(record.loss) and not record.finite_loss


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda t: t.repeat(3), "one value per example is returned by losses"),
        (lambda t: float(t.detach()), "output.loss"),
        (lambda t: (t, t, t), "how many were summed"),
        (lambda t: (t, 2.5), "whole numbers"),
        (lambda t: (t, -1), "whole numbers"),
        (lambda t: (t, True), "whole numbers"),
        (lambda t: None, "output.loss"),
        (lambda t: {"loss": t}, "output.loss"),
    ],
)
@pytest.mark.parametrize("validate", [False, True])
def test_a_loss_of_another_kind_is_named(
    make_engine: Make, returned: Any, words: str, validate: bool
) -> None:
    class Wrong(Mean):
        def loss(self, model: torch.nn.Module, batch: Any) -> Any:
            return returned(super().loss(model, batch))

    engine = make_engine(Wrong())
    with pytest.raises(RecipeFailure) as caught:
        engine.request_validation("x") if validate else engine.train_step(0.1)
    error = caught.value.error
    assert isinstance(error, ContractError) and words in f"{error.rule} {error.remedy}"


def test_a_mean_and_then_a_pair_is_refused(make_engine: Make) -> None:
    class Both(Bare):
        calls = 0

        def loss(self, model: torch.nn.Module, batch: Any) -> Any:
            Both.calls += 1
            total, count = super().loss(model, batch)
            return (total, count) if Both.calls % 2 else total / count

    with pytest.raises(RecipeFailure, match="same kind"):
        make_engine(Both(), batch=batch_of(4, 2)).train_step(0.1)


def test_counts_may_be_numbers_of_any_kind(make_engine: Make) -> None:
    import numpy as np

    kinds = [int, float, np.int64, lambda n: torch.tensor([n])]
    found = []
    for kind in kinds:

        class Counted(Bare):
            def loss(self, model: torch.nn.Module, batch: Any, kind: Any = kind) -> Any:
                total, count = super().loss(model, batch)
                return [total, kind(int(count))]

        found.append(steps(make_engine(Counted()), 1)[0].loss)
    assert len(set(found)) == 1


def test_the_longest_sample_of_every_kind(make_engine: Make) -> None:
    own = make_engine(TinyRecipe(dropout=0.0), precision="fp64").try_rows((0, 1, 2))
    for kind in (Bare, Mean):
        engine = make_engine(kind(), precision="fp64")
        assert engine.try_rows((0, 1, 2)) == pytest.approx(own, rel=1e-12)
        assert all(p.grad is None for p in engine.model.parameters())
