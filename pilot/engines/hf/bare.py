"""One optimizer step with the Trainer's own parts, on rows that are given: replays and branches.

The same calls in the same order as the Trainer's loop makes them, so that a replayed step is the
loop's, bit for bit on a CPU; the user's callbacks are not called.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from accelerate.utils import send_to_device

from pilot.engines.hf.rows import Rows
from pilot.engines.hf.tap import Tap
from pilot.engines.hf.twin import reacts_to_metrics


def train_rows(tap: Tap, loader: Any, batches: Sequence[Rows], *, is_try: bool = False) -> float:
    """Train one step on micro-batches of row ids; returns its loss.

    ``is_try``: no optimizer step, and the gradients are dropped; nothing is recorded.
    """
    trainer = tap.trainer
    dataset, collate = loader.dataset, loader.collate_fn
    tap.place = "collate"
    # As a prepared loader gives them; `training_step` prepares them further, in the Trainer's way.
    made = [
        send_to_device(collate([dataset[i] for i in rows]), trainer.args.device) for rows in batches
    ]
    samples, num_items = tap.samples_of(made)
    if not is_try:
        if tap.step + 1 in tap.data.first_steps:  # an epoch: its loader draws a base seed
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            tap.data.num_drawn = 0
        tap.data.num_drawn += len(batches)
        tap.begin_step(samples, list(batches))
    trainer.current_gradient_accumulation_steps = len(samples)
    model, loss = trainer.model_wrapped, 0.0
    for index, inputs in enumerate(samples):
        is_last = index == len(samples) - 1
        trainer.accelerator.gradient_state._set_sync_gradients(is_last)
        with nullcontext() if is_last else trainer.accelerator.no_sync(model=model):
            loss += float(trainer.training_step(model, inputs, num_items))
    if not is_try:
        _update(tap, model)
    model.zero_grad()
    return loss


def _update(tap: Tap, model: Any) -> None:
    trainer = tap.trainer
    norm = trainer._clip_grad_norm(model) if trainer.args.max_grad_norm > 0 else None
    trainer._get_grad_norm(model, grad_norm=norm)
    tap.before_optimizer()
    trainer.optimizer.step()
    tap.after_optimizer()
    within = tap.step <= int(trainer.state.max_steps)  # some schedulers refuse to go further
    by_metrics = reacts_to_metrics(trainer.lr_scheduler)
    if within and not by_metrics and not trainer.accelerator.optimizer_step_was_skipped:
        trainer.lr_scheduler.step()
