"""The probe against exact arithmetic."""

from __future__ import annotations

import math

import pytest
import torch

from pilot.probe import Probe
from pilot.probe_record import StepFacts, row_hash
from pilot.probe_sample import SAMPLE_ELEMENTS

FACTS = StepFacts(
    step=1,
    learning_rate=0.1,
    num_supervised_tokens=4,
    num_tokens=5,
    row_ids=(3, 1),
    longest_tokens=3,
    source_counts={"a": 2},
)


def one_step(model: torch.nn.Module, probe: Probe, change: float) -> float:
    """Scale all weights by 1 + change and return the relative update that the probe saw."""
    probe.start_step([])
    probe.add_losses(torch.tensor([2.0, 6.0]))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.0 + change)
    probe.end_step(FACTS, loss_scale=None, skipped=False)
    record = probe.collect()
    assert record is not None and record.loss == 2.0
    return record.relative_update


def test_relative_update_is_exact_for_small_and_close_for_large_tensors() -> None:
    torch.manual_seed(0)
    small = torch.nn.Linear(8, 8)
    assert one_step(small, Probe(small), 0.01) == pytest.approx(0.01 / 1.01, rel=1e-5)
    large = torch.nn.Linear(300, 300)
    probe = Probe(large)
    assert large.weight.numel() > SAMPLE_ELEMENTS
    with torch.no_grad():
        before = large.weight.clone()
        noise = torch.randn_like(before) * 1e-3
    probe.start_step([])
    with torch.no_grad():
        large.weight.add_(noise)
    probe.end_step(FACTS, loss_scale=None, skipped=False)
    record = probe.collect()
    assert record is not None
    both = torch.sqrt(large.weight.norm() ** 2 + large.bias.norm() ** 2)
    assert record.relative_update == pytest.approx(float(noise.norm() / both), rel=0.05)
    assert record.param_norm == pytest.approx(float(both), rel=0.05)


def test_median_is_over_tensors() -> None:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(4)) for _ in range(3)])
    probe = Probe(model)
    probe.start_step([])
    with torch.no_grad():
        for p, change in zip(model, (0.5, 0.01, 0.0), strict=True):
            p.mul_(1.0 + change)
    probe.end_step(FACTS, loss_scale=None, skipped=False)
    record = probe.collect()
    assert record is not None
    assert record.relative_update_median == pytest.approx(0.01 / 1.01, rel=1e-5)


def test_grad_norms() -> None:
    model = torch.nn.Linear(3, 2)
    probe = Probe(model)
    model.weight.grad, model.bias.grad = torch.full((2, 3), 2.0), torch.full((2,), 1.0)
    total, norms = probe.grads_ready()
    assert float(total) == pytest.approx(math.sqrt(26))
    assert torch.equal(total, torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]))
    assert [float(n) for n in norms] == pytest.approx([math.sqrt(24), math.sqrt(2)])
    model.weight.grad = torch.full((2, 3), float("nan"))
    model.bias.grad = None
    total, _ = probe.grads_ready()
    assert math.isnan(float(total))
    # The largest finite norm survives a NaN.
    assert probe.max_grad_norms.tolist() == pytest.approx([math.sqrt(24), math.sqrt(2)])


def test_non_finite_values_are_recorded_as_such() -> None:
    model = torch.nn.Linear(3, 2)
    probe = Probe(model)
    probe.start_step([])
    probe.add_losses(torch.tensor([float("inf"), 1.0]))
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    probe.end_step(FACTS, loss_scale=None, skipped=False)
    record = probe.collect()
    assert record is not None
    assert record.loss == math.inf and not record.finite_loss
    assert math.isnan(record.param_norm) and not record.finite_params
    assert probe.collect() is None


def test_only_embedding_rows_in_the_batch_count() -> None:
    """1,000 rows of which 2 are in the batch and move by 10 %: the update is 10 %, not 0.4 %."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(1000, 8)
            self.positions = torch.nn.Embedding(600, 8)

        def get_input_embeddings(self) -> torch.nn.Module:
            return self.embed

    torch.manual_seed(0)
    model = Model()
    model.positions.requires_grad_(False)
    probe = Probe(model)
    # An illegal id is the model's own business: the probe must not be the one to raise.
    probe.start_step([{"input_ids": torch.tensor([[5, 7, 5, 7]])}])
    with torch.no_grad():
        model.embed.weight[[5, 7]] *= 1.1
    probe.end_step(FACTS, loss_scale=None, skipped=False)
    record = probe.collect()
    assert record is not None
    assert record.relative_update == pytest.approx(0.1 / 1.1, rel=1e-4)


def test_a_tied_embedding_counts_whole() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(1000, 8)
            self.head = torch.nn.Linear(8, 1000, bias=False)
            self.head.weight = self.embed.weight

    assert Probe(Tied())._embeddings == []


def test_frozen_tensors_are_not_watched() -> None:
    model = torch.nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    assert Probe(model).names == ["bias"]


def test_row_hash_depends_on_ids_and_order() -> None:
    assert len(row_hash((1, 2, 3))) == 16
    assert len({row_hash((1, 2, 3)), row_hash((3, 2, 1)), row_hash((1, 2)), row_hash(())}) == 4


def test_position_tables_are_not_indexed_by_token_ids() -> None:
    """GPT-2 has a table of positions smaller than its vocabulary."""

    class Positions(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(5000, 4)
            self.positions = torch.nn.Embedding(1100, 4)

        def get_input_embeddings(self) -> torch.nn.Module:
            return self.embed

    probe = Probe(Positions())
    assert probe._embeddings == [0]
    probe.start_step([{"input_ids": torch.tensor([[4999, -1, 70_000]])}])
    probe.end_step(FACTS, loss_scale=None, skipped=False)
    record = probe.collect()
    assert record is not None and record.relative_update == 0.0


def test_sparse_gradients_have_a_norm() -> None:
    model = torch.nn.Embedding(10, 2, sparse=True)
    probe = Probe(model)
    model(torch.tensor([1, 1, 3])).sum().backward()
    total, _ = probe.grads_ready()
    assert float(total) == pytest.approx(math.sqrt(2 * 4 + 2 * 1))
