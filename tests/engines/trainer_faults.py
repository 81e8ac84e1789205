"""Trainers in which something is wrong, as users write them, by name.

``STEP`` is the step that a planted fault belongs to; counted from 1. Used by the engine's tests,
and, by name, by scripts of whole pilots.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback

from tests.engines.trainers import TRAIN, collate, make_model, make_rows, make_trainer

STEP = 5
NAN, INF = float("nan"), float("inf")


def raising(error: BaseException) -> Callable[..., Any]:
    """A function that raises ``error``."""

    def fail(*args: Any, **more: Any) -> Any:
        raise error

    return fail


def at_step(change: Callable[..., Any]) -> type[Trainer]:
    """A Trainer whose loss is ``change(trainer, compute_loss, *arguments)`` at ``STEP``."""

    class Changed(Trainer):
        def compute_loss(self, *args: Any, **more: Any) -> Any:
            loss = super().compute_loss
            wrong = self.model.training and self.state.global_step == STEP - 1
            return change(self, loss, *args, **more) if wrong else loss(*args, **more)

    return Changed


def plus(value: float) -> type[Trainer]:
    """The loss is not finite, its gradients are."""
    return at_step(lambda trainer, loss, *args, **more: loss(*args, **more) + value)


def _nan_gradients(trainer: Any, loss: Any, *args: Any, **more: Any) -> Any:
    first = next(trainer.model.parameters())
    handle: Any = first.register_hook(lambda grad: (handle.remove(), grad * NAN)[1])
    return loss(*args, **more)


class Hasty(Trainer):
    """Steps the scheduler once per micro-batch, and once more in the loop."""

    def training_step(self, *args: Any, **more: Any) -> Any:
        loss = super().training_step(*args, **more)
        self.lr_scheduler.step()
        return loss


class Unlabelled(Trainer):
    """A loss in which the labels are not used."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, **more: Any
    ) -> Any:
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
        loss = outputs.logits.float().pow(2).mean()
        return (loss, outputs) if return_outputs else loss


class Unvalidated(Trainer):
    """Its evaluation is broken."""

    def prediction_step(self, *args: Any, **more: Any) -> Any:
        raise ValueError("no such metric")


class ClipsInItsStep(Trainer):
    """Clips by accelerate inside its own ``training_step``."""

    def training_step(self, *args: Any, **more: Any) -> Any:
        loss = super().training_step(*args, **more)
        self.accelerator.clip_grad_norm_(self.model.parameters(), 0.5)
        return loss


class ClipsByTorch(Trainer):
    """Clips in its own ``_clip_grad_norm``, without accelerate."""

    def _clip_grad_norm(self, model: Any) -> Any:
        return torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)


class ClipsNothing(Trainer):
    """Somebody put another function in the place of accelerate's clipping."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.accelerator.clip_grad_norm_ = lambda params, limit, *rest: torch.tensor(limit)


class TrainsByItself(Trainer):
    """Research code: a loop of its own in ``train``."""

    num_trained = 0

    def train(self, *args: Any, **more: Any) -> Any:
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        for batch in self.get_train_dataloader():
            self.model(**batch).loss.backward()
            optimizer.step()
            self.num_trained += 1


class LosesGradients(Trainer):
    """From ``STEP`` on its gradients are replaced by 0, as a repair of NaN may do."""

    def training_step(self, *args: Any, **more: Any) -> Any:
        loss = super().training_step(*args, **more)
        if self.state.global_step >= STEP - 1:
            for param in self.model.parameters():
                param.grad = torch.zeros_like(param)
        return loss


class PlainLoss(Trainer):
    """Its ``training_step`` returns a Python number."""

    def training_step(self, *args: Any, **more: Any) -> Any:
        return float(super().training_step(*args, **more))


class Event(TrainerCallback):
    """Calls ``act`` at one event."""

    def __init__(self, event: str, act: Callable[..., Any]) -> None:
        setattr(self, event, act)


def draw_again(args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
    """Re-initialise the model in the middle of its training."""
    if state.global_step == 3 * STEP:
        with torch.no_grad():
            for param in model.parameters():
                param.normal_(0.0, 0.05)


def stop_early(args: Any, state: Any, control: Any, **more: Any) -> None:
    """Ask for the end after ``STEP`` steps."""
    if state.global_step >= STEP:
        control.should_training_stop = True


def fail_late(args: Any, state: Any, control: Any, **more: Any) -> None:
    """Raise from ``STEP`` steps on."""
    if state.global_step >= STEP:
        raise KeyError("callback")


def failing_collator(calls: int, error: BaseException) -> Callable[[Any], Any]:
    """A collator that raises when it is called for the ``calls``-th time of training."""
    count = [0]

    def failing(rows: Any) -> Any:
        if len(rows) > 1:  # pilot reads single rows, to count and to validate
            count[0] += 1
        if count[0] == calls:
            raise error
        return collate(rows)

    return failing


class Gone(list[Any]):
    """Rows of which one cannot be read once it is wanted for the ``reads``-th time."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        if index == 20:
            self.reads += 1
            if self.reads > 1:
                raise IndexError("row 20 is gone")
        return super().__getitem__(index)


def masked(rows: list[Any], every: int = 1) -> list[Any]:
    """Rows without a supervised token, but for each ``every``-th."""
    return [
        row if every > 1 and index % every == 0 else {**row, "labels": [-100] * len(row["labels"])}
        for index, row in enumerate(rows)
    ]


def half_optimizer() -> dict[str, Any]:
    """A model, and an optimizer that was given every second of its tensors."""
    model = make_model()
    optimizer = torch.optim.AdamW(list(model.parameters())[::2], lr=1e-2)
    return {"model": model, "optimizers": (optimizer, None)}


def late_optimizer(error: BaseException) -> dict[str, Any]:
    """A model, and an optimizer that raises at ``STEP``."""

    class Failing(torch.optim.AdamW):
        done = 0

        def step(self, *args: Any, **more: Any) -> Any:
            self.done += 1
            return raising(error)() if self.done == STEP else super().step(*args, **more)

    model = make_model()
    return {"model": model, "optimizers": (Failing(model.parameters(), lr=1e-2), None)}


def with_callback(event: str, act: Callable[..., Any]) -> type[Trainer]:
    """A Trainer with one more callback, that comes before pilot's."""

    class Called(Trainer):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.add_callback(Event(event, act))

    return Called


def out_of_memory() -> BaseException:
    """As torch raises it."""
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


# What `make_trainer` is given, by the name of the fault.
FAULTS: dict[str, Callable[[], dict[str, Any]]] = {
    "nan_loss_once": lambda: {"kind": plus(NAN)},
    "inf_loss_once": lambda: {"kind": plus(INF)},
    "nan_gradients": lambda: {"kind": at_step(_nan_gradients)},
    "all_masked": lambda: {"train": masked(TRAIN)},
    "most_masked": lambda: {"train": masked(TRAIN, every=8)},
    "frozen": lambda: {"model": make_model().requires_grad_(False)},
    "hasty_scheduler": lambda: {"kind": Hasty, "gradient_accumulation_steps": 2},
    "half_optimizer": half_optimizer,
    "collator": lambda: {"collator": failing_collator(20, KeyError("gone"))},
    "dataset": lambda: {"train": Gone(make_rows(32))},
    "loss_raises": lambda: {"kind": at_step(raising(ValueError("shapes differ")))},
    "loss_tuple": lambda: {"kind": at_step(lambda t, loss, *a, **k: (loss(*a, **k), 1))},
    "loss_detached": lambda: {"kind": at_step(lambda t, loss, *a, **k: loss(*a, **k).detach())},
    "loss_number": lambda: {"kind": at_step(lambda t, loss, *a, **k: float(loss(*a, **k)))},
    "loss_none": lambda: {"kind": at_step(lambda t, loss, *a, **k: None)},
    "training_step_number": lambda: {"kind": PlainLoss},
    "out_of_memory": lambda: {"kind": at_step(raising(out_of_memory()))},
    "out_of_memory_smaller_batch": lambda: {
        "kind": at_step(raising(out_of_memory())),
        "auto_find_batch_size": True,
    },
    "system_exit": lambda: {"kind": at_step(raising(SystemExit(3)))},
    "interrupt": lambda: {"kind": at_step(raising(KeyboardInterrupt()))},
    "optimizer": lambda: late_optimizer(RuntimeError("state is gone")),
    "callback_stops": lambda: {"kind": with_callback("on_step_end", stop_early)},
    "callback_stops_at_log": lambda: {"kind": with_callback("on_log", stop_early)},
    "callback_raises": lambda: {"kind": with_callback("on_step_end", fail_late)},
    "callback_raises_at_epoch": lambda: {"kind": with_callback("on_epoch_begin", fail_late)},
    "callback_raises_at_start": lambda: {
        "kind": with_callback("on_train_begin", raising(KeyError("callback")))
    },
    "evaluation": lambda: {"kind": Unvalidated},
    "unlabelled": lambda: {"kind": Unlabelled},
    "clips_nothing": lambda: {"kind": ClipsNothing, "max_grad_norm": 0.1},
    "drawn_again": lambda: {"kind": with_callback("on_step_end", draw_again)},
    "no_gradients": lambda: {"kind": LosesGradients},
    "trains_by_itself": lambda: {"kind": TrainsByItself},
}


def faulty(name: str, folder: Path, **arguments: Any) -> Any:
    """The Trainer with the fault ``name``."""
    return make_trainer(folder, **{**FAULTS[name](), **arguments})


def stopping_early(folder: Path) -> Any:
    """A Trainer that stops when its own evaluations get worse: what pilot has to leave out."""
    trainer = make_trainer(
        folder, eval_strategy="steps", eval_steps=2, metric_for_best_model="eval_loss"
    )
    trainer.add_callback(EarlyStoppingCallback(early_stopping_patience=1))
    return trainer
