"""What the user's code may do to its arguments and its Trainer, and what a pilot makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pilot.engines.hf.build import Built, build_trainer
from pilot.errors import ConfigError, RecipeFailure
from tests.engines.trainers import attach, make_model, make_trainer, run_steps

HEAD = """
from pathlib import Path
import torch
from tests.engines.trainers import HELD, TRAIN, collate, make_model, make_trainer
HERE = Path(__file__).parent
THEIRS = HERE / "their_output"
"""


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Built]:
    """Build what ``code`` defines as ``build_trainer``."""

    def run(code: str, first: int | None = None, **changes: Any) -> Built:
        (tmp_path / "script.py").write_text(HEAD + code)
        return build_trainer("script.py", tmp_path, tmp_path / "scratch", changes, seed=first)

    return run


def test_arguments_that_the_script_changes_later(
    build: Callable[..., Built], tmp_path: Path
) -> None:
    code = """
def build_trainer():
    from transformers import Trainer, TrainingArguments
    args = TrainingArguments(output_dir=str(THEIRS), use_cpu=True, report_to="none")
    args.learning_rate, args.output_dir, args.save_strategy = 3e-3, str(THEIRS), "steps"
    trainer = Trainer(make_model(), args, train_dataset=TRAIN, data_collator=collate)
    trainer.args.output_dir = str(THEIRS)
    trainer.args.learning_rate = 4e-3
    return trainer
"""
    found = build(code, learning_rate=1e-3, per_device_train_batch_size=2)
    args = found.trainer.args
    assert args.learning_rate == 1e-3 and found.own["learning_rate"] == 4e-3
    assert args.output_dir == str(tmp_path / "scratch") and args.save_strategy == "no"
    assert found.trainer._train_batch_size == 2
    assert not (tmp_path / "their_output").exists()


def test_a_trl_trainer_that_makes_its_arguments_anew(
    build: Callable[..., Built], tmp_path: Path
) -> None:
    """SFTTrainer turns plain TrainingArguments into its own: the user's value must not be lost."""
    pytest.importorskip("trl")
    code = """
def build_trainer():
    from datasets import Dataset
    from transformers import TrainingArguments
    from trl import SFTTrainer
    from tests import tiny_llama
    rows = Dataset.from_list([{"input_ids": row["input_ids"]} for row in TRAIN])
    args = TrainingArguments(
        output_dir=str(THEIRS), use_cpu=True, learning_rate=7e-3, push_to_hub=False,
        report_to=["tensorboard"], logging_steps=1,
    )
    return SFTTrainer(
        make_model(), args, train_dataset=rows, processing_class=tiny_llama.tokenizer()
    )
"""
    found = build(code, learning_rate=1e-3, max_length=32)
    assert type(found.trainer).__name__ == "SFTTrainer"
    assert found.trainer.args.learning_rate == 1e-3 and found.own["learning_rate"] == 7e-3
    assert found.trainer.args.max_length == 32
    run_steps(attach(found.trainer), 2)
    assert not (tmp_path / "their_output").exists()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"adam_beta3": 0.9}, "did you mean 'adam_beta2'"),
        ({"adam_beta2": "x"}, "must be a number"),
        ({"max_length": 3}, "no such name"),
    ],
)
def test_a_wrong_argument_is_named(
    build: Callable[..., Built], changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        build("def build_trainer():\n    return make_trainer(THEIRS)\n", **changes)


TRAINS = [
    "def build_trainer():\n    t = make_trainer(THEIRS)\n    t.train()\n    return t\n",
    "trainer = make_trainer(THEIRS)\ntrainer.train()\n\ndef build_trainer():\n    return trainer\n",
    "def build_trainer():\n    t = make_trainer(THEIRS)\n    t.state.global_step = 3\n"
    "    return t\n",
]


@pytest.mark.parametrize("code", TRAINS, ids=["in the callable", "at import", "somehow"])
def test_a_script_that_trains_is_refused(
    build: Callable[..., Built], code: str, tmp_path: Path
) -> None:
    from transformers import Trainer

    before = Trainer.train
    with pytest.raises(ConfigError, match="return it untrained"):
        build(code)
    assert Trainer.train is before and not (tmp_path / "their_output").exists()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("def build_trainer():\n    make_trainer(THEIRS)\n", "return trainer"),
        ("def build_trainer(cfg, *, lr, n=3):\n    return 1\n", "needs cfg, lr"),
        ("build_trainer = lambda: (1, 2)\n", "it returned tuple"),
    ],
    ids=["nothing", "arguments", "a pair"],
)
def test_what_is_returned(build: Callable[..., Built], code: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        build(code)


DRAWN = """
def build_trainer():
    {own}
    model = make_model()
    torch.nn.init.normal_(model.lm_head.weight)
    return make_trainer(THEIRS, model=model)
"""


def weights(built: Built) -> torch.Tensor:
    found: torch.Tensor = built.trainer.model.lm_head.weight.detach().clone()
    return found


def test_what_the_callable_draws_is_that_of_the_seed(build: Callable[..., Built]) -> None:
    code = DRAWN.format(own="pass")
    one, same, other = (weights(build(code, first=seed)) for seed in (5, 5, 6))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_a_seed_of_the_scripts_own_wins(build: Callable[..., Built]) -> None:
    code = DRAWN.format(own="torch.manual_seed(1)")
    assert torch.equal(weights(build(code, first=5)), weights(build(code, first=6)))


def test_seeding_does_not_move_the_order_of_the_rows(build: Callable[..., Built]) -> None:
    code = "def build_trainer():\n    return make_trainer(THEIRS)\n"
    own = attach(build(code).trainer)
    seeded = attach(build(code, first=3).trainer)
    replica = attach(build(code, first=11, seed=11, data_seed=7).trainer)
    for step in range(1, 20):
        assert own.rows_of(step) == seeded.rows_of(step) == replica.rows_of(step)


def test_model_init_is_called_once_and_trains_as_it_would(
    build: Callable[..., Built], tmp_path: Path
) -> None:
    """Dropout on: the random state after the model is that of the user's own run, too."""

    def init() -> Any:
        model = make_model(dropout=0.2)
        torch.nn.init.normal_(model.lm_head.weight, std=0.02)
        return model

    from transformers import Trainer, TrainingArguments

    from tests.engines.trainers import TRAIN, collate

    args = TrainingArguments(
        str(tmp_path / "plain"),
        max_steps=4,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        learning_rate=1e-2,
    )
    plain = Trainer(model_init=init, args=args, train_dataset=TRAIN, data_collator=collate)
    plain.train()
    code = """
def init():
    model = make_model(dropout=0.2)
    torch.nn.init.normal_(model.lm_head.weight, std=0.02)
    return model

def build_trainer():
    from transformers import Trainer, TrainingArguments
    args = TrainingArguments(
        str(THEIRS), max_steps=4, use_cpu=True, logging_steps=1, learning_rate=1e-2
    )
    return Trainer(model_init=init, args=args, train_dataset=TRAIN, data_collator=collate)
"""
    found = build(code, first=42)
    watched = found.trainer.model
    records = run_steps(attach(found.trainer), 4)
    assert found.trainer.model is watched and found.trainer.model_init is None
    logged = [log["grad_norm"] for log in plain.state.log_history if "grad_norm" in log]
    assert [r.grad_norm for r in records] == logged


CALLBACKS = """
def build_trainer():
    from transformers import EarlyStoppingCallback
    from transformers.integrations import TensorBoardCallback
    import pilot
    trainer = make_trainer(
        THEIRS, load_best_model_at_end=True, eval_strategy="steps", save_strategy="steps",
        metric_for_best_model="loss", auto_find_batch_size=True, eval_on_start=True,
        save_steps=2, eval_steps=2,
    )
    trainer.add_callback(EarlyStoppingCallback(early_stopping_patience=1))
    trainer.add_callback(pilot.PilotCallback(out_dir=HERE / "records"))
    return trainer
"""


def test_what_only_evaluates_saves_or_tracks_does_not_act(
    build: Callable[..., Built], tmp_path: Path
) -> None:
    found = build(CALLBACKS)
    names = [type(callback).__name__ for callback in found.trainer.callback_handler.callbacks]
    assert names == ["DefaultFlowCallback"]
    assert not found.trainer.args.auto_find_batch_size
    text = "\n".join(found.notes)
    assert "EarlyStoppingCallback" in text and "auto_find_batch_size" in text
    records = run_steps(attach(found.trainer), 6)
    assert [r.step for r in records] == [1, 2, 3, 4, 5, 6]
    assert {path.name for path in tmp_path.iterdir()} == {"script.py", "scratch", "__pycache__"} - (
        {"__pycache__"} if not (tmp_path / "__pycache__").exists() else set()
    )
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_callback_that_ends_the_run_is_an_outcome(tmp_path: Path) -> None:
    from transformers import TrainerCallback

    class Stop(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            control.should_training_stop = state.global_step == 3

    trainer = make_trainer(tmp_path)
    trainer.add_callback(Stop())
    with pytest.raises(RecipeFailure, match="ended by itself after step 3 of 60"):
        run_steps(attach(trainer), 6)


def test_a_compiled_model_is_watched_through_its_own_parameters(tmp_path: Path) -> None:
    """Backend ``eager``: no compiler is needed, the wrapping is that of any backend."""
    trainer = make_trainer(tmp_path, torch_compile=True, torch_compile_backend="eager")
    engine = attach(trainer)
    names = {name for name, _ in engine.model.named_parameters()}
    compiled = run_steps(engine, 3, before=lambda: engine.request_validation("before"))
    plain = run_steps(attach(make_trainer(tmp_path)), 3)
    assert names == {name for name, _ in make_model().named_parameters()}
    for one, other in zip(compiled, plain, strict=True):
        assert one.row_ids == other.row_ids
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
