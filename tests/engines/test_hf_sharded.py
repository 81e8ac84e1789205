"""DeepSpeed, FSDP and their like: recognised, listed, refused for a pilot, watched by a callback.

DeepSpeed is not installed here: its engine is simulated by one with the same calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from transformers import TrainerCallback

import pilot
from pilot.engines.hf import sharded
from pilot.engines.hf.answers import precision_of
from pilot.engines.hf.arguments import disagreements, tree_of
from pilot.engines.hf.build import build_trainer
from pilot.errors import UsageError
from pilot.judge import judge, load_gates
from pilot.view import load
from tests.engines.trainers import config_for, make_trainer

SCRIPT = """
from pathlib import Path
from tests.engines.trainers import make_trainer

def build_trainer():
    return make_trainer(Path("out"), {argument})
"""


def build(tmp_path: Path, argument: str) -> Any:
    (tmp_path / "script.py").write_text(SCRIPT.format(argument=argument))
    return build_trainer("script.py", tmp_path, tmp_path / "scratch", {})


@pytest.mark.parametrize(
    ("argument", "kind", "hidden"),
    [
        ('deepspeed={"zero_optimization": {"stage": 2}}', "DeepSpeed", "p.grad is None"),
        ('deepspeed="no_such_file.json"', "DeepSpeed", "get_global_grad_norm"),
        ("fsdp=True", "FSDP", "DTensor"),
        ('fsdp="full_shard auto_wrap"', "FSDP", "no snapshot"),
    ],
)
def test_arguments_are_recognised_before_anything_is_imported(
    tmp_path: Path, argument: str, kind: str, hidden: str
) -> None:
    with pytest.raises(UsageError) as caught:
        build(tmp_path, argument)
    text = str(caught.value)
    assert f"under {kind}" in text and hidden in text
    assert "remedy:" in text and "launcher.num_processes" in text


@pytest.mark.parametrize(
    ("variable", "kind"),
    [
        ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed"),
        ("ACCELERATE_USE_FSDP", "FSDP"),
        ("ACCELERATE_USE_MEGATRON_LM", "Megatron-LM"),
    ],
)
def test_the_environment_of_accelerate_is_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, kind: str
) -> None:
    monkeypatch.setenv(variable, "true")
    with pytest.raises(UsageError, match=f"under {kind}"):
        build(tmp_path, "")
    monkeypatch.setenv(variable, "false")
    assert build(tmp_path, "").trainer is not None


@pytest.mark.parametrize(
    ("variable", "arguments", "expected"),
    [("bf16", {}, "bf16"), ("no", {}, "fp32"), ("", {}, "fp32"), ("no", {"bf16": True}, "bf16")],
)
def test_the_precision_of_the_environment_must_be_that_of_the_configuration(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    arguments: dict[str, Any],
    expected: str,
) -> None:
    if variable:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", variable)
    trainer = make_trainer(tmp_path, **arguments)
    assert precision_of(trainer) == expected
    assert tree_of(trainer, "x", 60)["precision"] == expected
    lines = disagreements(trainer, {}, config_for(trainer, precision="fp32"), 32, 60)
    said = f"precision is fp32, the Trainer's is {expected}"
    assert (said in lines) == (expected != "fp32")


def test_a_plain_trainer_hides_nothing(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    assert sharded.of_trainer(trainer) == "" and not sharded.hides_tensors(trainer)
    sharded.refuse("")


def test_each_kind_says_what_it_hides() -> None:
    for kind, lines in sharded.HIDES.items():
        with pytest.raises(UsageError) as caught:
            sharded.refuse(kind)
        assert all(line in str(caught.value) for line in lines) and lines


class FakeDeepSpeed(TrainerCallback):
    """What accelerate does under DeepSpeed: ``backward`` steps, ``p.grad`` is None behind it."""

    def __init__(self, trainer: Any, patch: pytest.MonkeyPatch) -> None:
        self.trainer, self.patch, self.norm = trainer, patch, None

    def get_global_grad_norm(self) -> Any:
        return self.norm

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        accelerator, kind = (
            self.trainer.accelerator,
            property(lambda own: DistributedType.DEEPSPEED),
        )
        self.optimizer, self.step = more["optimizer"].optimizer, more["optimizer"].step
        more["optimizer"].step = lambda *given: None
        accelerator.backward = self.backward
        accelerator.clip_grad_norm_ = lambda *given, **named: self.get_global_grad_norm()
        self.patch.setattr(Accelerator, "distributed_type", kind)
        self.patch.setattr(Accelerator, "_prepare_deepspeed", self.prepare)

    @staticmethod
    def prepare(accelerator: Any, *loaders: Any) -> tuple[Any, ...]:
        return tuple(accelerator.prepare_data_loader(loader) for loader in loaders)

    def backward(self, loss: torch.Tensor, **more: Any) -> None:
        loss.backward()
        if self.trainer.accelerator.sync_gradients:
            params = list(self.trainer.model.parameters())
            self.norm = torch.nn.utils.clip_grad_norm_(params, 1.0).item()
            self.optimizer.step()
            for param in params:
                param.grad = None


def test_the_callback_goes_on_with_what_deepspeed_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"max_steps": 10, "gradient_accumulation_steps": 2}
    plain = make_trainer(tmp_path / "a", **settings)
    plain.train()
    trainer = make_trainer(tmp_path / "b", **settings)
    trainer.add_callback(FakeDeepSpeed(trainer, monkeypatch))
    trainer.add_callback(pilot.PilotCallback(tmp_path / "records", validation_rows=8))
    trainer.train()
    view = load(tmp_path / "records")
    assert view.baseline is not None
    logs = [log for log in plain.state.log_history if "loss" in log]
    steps = view.baseline.steps
    assert [r.grad_norm for r in steps] == pytest.approx([log["grad_norm"] for log in logs])
    assert [r.learning_rate for r in steps] == [log["learning_rate"] for log in logs]
    assert all(r.finite_loss and r.finite_grads and r.finite_params for r in steps)
    assert [r.clip_coef < 1 for r in steps] == [r.grad_norm >= 1 for r in steps]
    assert view.baseline.experiment("movement") is None
    verdict = judge(view, load_gates(view)).verdict
    gates = {gate["name"]: gate["status"] for gate in verdict["gates"]}
    assert gates["movement"] == "not_measured" and gates["finite"] == "pass"
    for line in sharded.HIDES[sharded.DEEPSPEED]:
        assert f"under DeepSpeed: {line}" in verdict["not_measured"]
