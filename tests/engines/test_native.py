"""One optimizer step of the native engine against plain PyTorch, and what must not change it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pilot.engines.native import NativeEngine
from pilot.engines.state import copy_state
from pilot.errors import RecipeFailure
from pilot.experiments import determinism, longest_sample, movement
from tests.recipes_for_tests import TinyRecipe

Make = Callable[..., NativeEngine]


def steps(engine: NativeEngine, count: int, rate: float = 0.1) -> list[Any]:
    """Train ``count`` steps and return all records."""
    for _ in range(count):
        engine.train_step(rate)
    engine.flush()
    return engine.observer.steps  # type: ignore[attr-defined,no-any-return]


def weights(engine: NativeEngine) -> torch.Tensor:
    """All weights in one vector."""
    return torch.cat([p.detach().reshape(-1).double() for p in engine.model.parameters()])


def reference_step(engine: NativeEngine, limit: float | None) -> tuple[float, float, torch.Tensor]:
    """Loss, pre-clip norm and weights after one SGD step, by hand, on the first eight rows."""
    model, recipe = engine.model, engine.recipe
    rows = [recipe.train[int(i)] for i in engine.order[:8]]
    batch = recipe.collate(rows)
    loss = recipe.losses(model, batch).sum() / recipe.num_supervised(batch).sum()
    grads = torch.autograd.grad(loss, list(model.parameters()))
    norm = math.sqrt(sum(float((g.double() ** 2).sum()) for g in grads))
    coef = 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))
    after = [p.detach() - 0.1 * coef * g for p, g in zip(model.parameters(), grads, strict=True)]
    return float(loss.detach()), norm, torch.cat([a.reshape(-1).double() for a in after])


@pytest.mark.parametrize("limit", [None, 0.2, 1e6])
def test_one_step_equals_plain_pytorch(make_engine: Make, limit: float | None) -> None:
    engine = make_engine(optim={"max_grad_norm": limit}, precision="fp64")
    loss, norm, after = reference_step(engine, limit)
    record = steps(engine, 1)[0]
    assert record.loss == pytest.approx(loss, rel=1e-12)
    assert record.grad_norm == pytest.approx(norm, rel=1e-12)
    expected = 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))
    assert record.clip_coef == pytest.approx(expected, rel=1e-12)
    assert torch.allclose(weights(engine), after, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("size", "accumulate"), [(4, 2), (2, 4), (1, 8), (3, 1)])
def test_accumulation_is_token_weighted(make_engine: Make, size: int, accumulate: int) -> None:
    """Rows have unequal token counts: a mean of means would give another loss and gradient."""
    whole = make_engine(
        batch={"micro_batch_size": size * accumulate, "grad_accum_steps": 1}, precision="fp64"
    )
    split = make_engine(
        batch={"micro_batch_size": size, "grad_accum_steps": accumulate}, precision="fp64"
    )
    one, many = steps(whole, 3)[-1], steps(split, 3)[-1]
    assert one.row_ids == many.row_ids
    assert many.loss == pytest.approx(one.loss, rel=1e-12)
    assert many.grad_norm == pytest.approx(one.grad_norm, rel=1e-11)
    assert torch.allclose(weights(whole), weights(split), rtol=0, atol=1e-13)


def test_fp16_is_unscaled_before_it_is_measured_and_clipped(make_engine: Make) -> None:
    """With the scale 65,536 left in, norm and update would be wrong by orders of magnitude."""
    exact = make_engine(optim={"max_grad_norm": 0.2})
    scaled = make_engine(optim={"max_grad_norm": 0.2}, precision="fp16")
    a, b = steps(exact, 2), steps(scaled, 2)
    assert b[0].loss_scale == 65536.0
    assert b[0].grad_norm == pytest.approx(a[0].grad_norm, rel=1e-2)
    assert b[0].clip_coef == pytest.approx(a[0].clip_coef, rel=1e-2)
    assert b[0].relative_update == pytest.approx(a[0].relative_update, rel=2e-2)
    assert torch.allclose(weights(exact), weights(scaled), atol=1e-3)


def test_fp16_overflow_is_a_skipped_step(make_engine: Make) -> None:
    class Huge(TinyRecipe):
        def losses(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
            return super().losses(model, batch) * 1e36

    engine = make_engine(Huge(dropout=0.0), precision="fp16")
    before = weights(engine)
    record = steps(engine, 1)[0]
    assert record.step_skipped and not record.finite_grads
    assert torch.equal(weights(engine), before)
    assert record.relative_update == 0.0


def test_bf16_autocast_keeps_fp32_weights(make_engine: Make) -> None:
    engine = make_engine(precision="bf16")
    record = steps(engine, 1)[0]
    assert {p.dtype for p in engine.model.parameters()} == {torch.float32}
    assert record.loss_scale is None and record.finite_grads


def test_the_rate_given_is_the_rate_used(make_engine: Make) -> None:
    engine = make_engine()
    engine.train_step(0.0)
    still = weights(engine)
    engine.train_step(0.25)
    engine.flush()
    records = engine.observer.steps  # type: ignore[attr-defined]
    assert [r.learning_rate for r in records] == [0.0, 0.25]
    assert records[0].relative_update == 0.0
    moved = (weights(engine) - still).norm() / weights(engine).norm()
    assert records[1].relative_update == pytest.approx(float(moved), rel=1e-6)


def test_records_come_one_step_late(make_engine: Make) -> None:
    engine = make_engine()
    engine.train_step(0.1)
    assert engine.observer.steps == []  # type: ignore[attr-defined]
    engine.train_step(0.1)
    assert [r.step for r in engine.observer.steps] == [1]  # type: ignore[attr-defined]
    engine.flush()
    engine.flush()
    assert [r.step for r in engine.observer.steps] == [1, 2]  # type: ignore[attr-defined]


def test_experiments_and_validation_do_not_move_the_run(make_engine: Make) -> None:
    """Dropout on: a random number drawn outside of the run would change every later loss."""
    plain = make_engine(TinyRecipe(dropout=0.5), optim={"_target_": "torch.optim.AdamW"})
    expected = steps(plain, 4, 0.01)  # before the other engine is built: the generator is global
    watched = make_engine(TinyRecipe(dropout=0.5), optim={"_target_": "torch.optim.AdamW"})
    lengths = torch.tensor([len(e.input_ids) for e in watched.recipe.train]).numpy()
    longest_sample.measure(watched, lengths, 8)
    evidence = determinism.measure(watched, tuple(int(i) for i in watched.order[:8]))
    assert evidence.values["relative_spread"] == 0.0
    for _ in range(4):
        watched.request_validation("x")
        watched.train_step(0.01)
    watched.flush()
    assert expected == watched.observer.steps  # type: ignore[attr-defined]


def test_determinism_sees_a_recipe_that_is_not(make_engine: Make) -> None:
    class Drifting(TinyRecipe):
        calls = 0

        def losses(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
            Drifting.calls += 1
            return super().losses(model, batch) * (1.0 + 1e-3 * Drifting.calls)

    engine = make_engine(Drifting(dropout=0.0))
    evidence = determinism.measure(engine, tuple(int(i) for i in engine.order[:8]))
    assert evidence.values["relative_spread"] > 1e-4
    assert evidence.values["max_param_diff"] > 0.0


def test_restore_is_bit_identical(make_engine: Make) -> None:
    kind = {"_target_": "torch.optim.AdamW", "max_grad_norm": 0.5}
    straight = make_engine(TinyRecipe(dropout=0.5), optim=kind)
    steps(straight, 8, 0.02)
    resumed = make_engine(TinyRecipe(dropout=0.5), optim=kind)
    steps(resumed, 4, 0.02)
    state = copy_state(resumed.snapshot())
    steps(resumed, 3, 0.05)
    resumed.restore(state)
    resumed.observer.steps.clear()  # type: ignore[attr-defined]
    assert steps(resumed, 4, 0.02) == straight.observer.steps[4:]  # type: ignore[attr-defined]
    assert torch.equal(weights(resumed), weights(straight))


def test_validation_is_per_example_in_evaluation_mode(make_engine: Make) -> None:
    engine = make_engine(TinyRecipe(dropout=0.9), pilot={"validation_rows": 8})
    first = engine.request_validation("before")[0]
    again = engine.request_validation("again")[0]
    assert first.primary and first.loss_sums == again.loss_sums
    plain = make_engine(TinyRecipe(dropout=0.0), pilot={"validation_rows": 8})
    assert plain.request_validation("before")[0].loss_sums == first.loss_sums
    assert len(first.loss_sums) == len(first.token_counts) == 8
    assert first.loss == pytest.approx(sum(first.loss_sums) / sum(first.token_counts))
    engine.train_step(0.1)
    assert engine.model.training


def test_no_supervised_token_is_nan_not_zero(make_engine: Make) -> None:
    class Masked(TinyRecipe):
        def collate(self, examples: Any) -> dict[str, torch.Tensor]:
            batch = super().collate(examples)
            batch["labels"] = torch.full_like(batch["labels"], -100)
            return batch

    record = steps(make_engine(Masked(dropout=0.0)), 1)[0]
    assert math.isnan(record.loss) and not record.finite_loss


@pytest.mark.parametrize("place", ["collate", "losses", "num_supervised"])
def test_a_failing_recipe_names_place_step_and_rows(make_engine: Make, place: str) -> None:
    class Failing(TinyRecipe):
        calls = 0

    def fail(self: Any, *args: Any) -> Any:
        Failing.calls += 1
        if Failing.calls == 3:
            raise KeyError("gone")
        return getattr(TinyRecipe, place)(self, *args)

    setattr(Failing, place, fail)
    engine = make_engine(Failing(dropout=0.0))
    with pytest.raises(RecipeFailure) as caught:
        steps(engine, 5)
    failure = caught.value
    assert failure.step == 3 and failure.row_ids == tuple(int(i) for i in engine.order[16:24])
    assert failure.where == ("forward" if place == "losses" else "collate")
    assert not failure.out_of_memory and "KeyError" in failure.traceback_text


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_memory_errors_are_recognised(make_engine: Make, error: BaseException) -> None:
    class Hungry(TinyRecipe):
        def losses(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
            raise error

    with pytest.raises(RecipeFailure) as caught:
        make_engine(Hungry()).train_step(0.1)
    assert caught.value.out_of_memory


def test_everything_frozen_is_an_outcome(make_engine: Make) -> None:
    class Frozen(TinyRecipe):
        def build_model(self, scale: Any) -> torch.nn.Module:
            return super().build_model(scale).requires_grad_(False)

    with pytest.raises(RecipeFailure, match="frozen"):
        make_engine(Frozen())


def test_a_snapshot_stays_what_it_was(make_engine: Make) -> None:
    """The optimizer must not train on inside the snapshot that it was restored from."""
    engine = make_engine(optim={"_target_": "torch.optim.AdamW"})
    steps(engine, 2, 0.02)
    state = copy_state(engine.snapshot())
    kept = copy_state(state)
    engine.restore(state)
    steps(engine, 2, 0.02)
    for index, moments in kept["optimizer"]["state"].items():
        for name, value in moments.items():
            assert torch.equal(value, state["optimizer"]["state"][index][name])
    evidence = determinism.measure(engine, tuple(int(i) for i in engine.order[:8]))
    assert evidence.values["max_param_diff"] == 0.0


@pytest.mark.parametrize("stop", [SystemExit(0), KeyboardInterrupt()])
def test_a_recipe_cannot_end_the_pilot(make_engine: Make, stop: BaseException) -> None:
    class Quitting(TinyRecipe):
        def losses(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
            raise stop

    with pytest.raises(RecipeFailure):
        make_engine(Quitting()).train_step(0.1)


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("what", ["scalar", "matrix", "short", "list"])
def test_losses_must_be_one_per_example(make_engine: Make, what: str, validate: bool) -> None:
    class Wrong(TinyRecipe):
        def losses(self, model: torch.nn.Module, batch: Any) -> Any:
            right = super().losses(model, batch)
            return {
                "scalar": right.sum(),
                "matrix": right[:, None],
                "short": right[1:],
                "list": right.tolist(),
            }[what]

    engine = make_engine(Wrong(dropout=0.0))
    with pytest.raises(RecipeFailure, match="one value per example"):
        engine.request_validation("x") if validate else engine.train_step(0.1)


def test_the_longest_sample_leaves_running_statistics_alone(make_engine: Make) -> None:
    class Normed(TinyRecipe):
        def build_model(self, scale: Any) -> torch.nn.Module:
            model = super().build_model(scale)
            norm = torch.nn.BatchNorm1d(8)
            embed = model.embed.forward
            model.norm = norm
            model.embed.forward = lambda ids: norm(embed(ids).transpose(1, 2)).transpose(1, 2)
            return model

    engine = make_engine(Normed(dropout=0.0))
    before = {n: b.clone() for n, b in engine.model.named_buffers()}
    lengths = torch.tensor([len(e.input_ids) for e in engine.recipe.train]).numpy()
    longest_sample.measure(engine, lengths, 8)
    assert before and all(torch.equal(b, before[n]) for n, b in engine.model.named_buffers())
    engine.train_step(0.1)
    assert not torch.equal(engine.model.norm.running_mean, before["norm.running_mean"])


def test_movement_only_reads(make_engine: Make) -> None:
    engine = make_engine(optim={"_target_": "torch.optim.AdamW"})
    before = movement.start_weights(engine)
    steps(engine, 3, 0.02)
    # As if nothing had moved: every tensor is still, and its lost update is worked out.
    now = movement.start_weights(engine)
    kept = weights(engine)
    values = movement.measure(engine, now).values
    assert torch.equal(weights(engine), kept)
    assert len(values["still"]) == 3
    assert all(row["update_over_half_ulp"] > 100 for row in values["still"])
    assert movement.measure(engine, before).values["still"] == []


def test_an_update_below_half_an_ulp_is_known_as_lost(make_engine: Make) -> None:
    engine = make_engine(optim={"_target_": "torch.optim.SGD"})
    before = movement.start_weights(engine)
    steps(engine, 2, 1e-12)
    values = movement.measure(engine, before).values
    weight = next(row for row in values["still"] if row["name"] == "head.weight")
    assert 0.0 < weight["update_over_half_ulp"] < 1.0


def test_movement_names_what_cannot_learn_and_what_is_broken(make_engine: Make) -> None:
    class Odd(TinyRecipe):
        def build_model(self, scale: Any) -> torch.nn.Module:
            model = super().build_model(scale)
            model.unused = torch.nn.Parameter(torch.ones(3))
            model.head.bias.register_hook(torch.zeros_like)
            return model

    engine = make_engine(Odd(dropout=0.0))
    before = movement.start_weights(engine)
    steps(engine, 2)
    with torch.no_grad():
        engine.model.embed.weight[0, 0] = float("inf")
    values = movement.measure(engine, before).values
    assert [row["name"] for row in values["no_grad"]] == ["unused"]
    assert [row["name"] for row in values["zero_grad"]] == ["head.bias"]
    assert [row["name"] for row in values["non_finite"]] == ["embed.weight"]
