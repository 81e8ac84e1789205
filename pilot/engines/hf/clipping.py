"""The gradient norm of a Trainer's step before it is clipped, and by how much it is.

A Trainer clips by ``accelerator.clip_grad_norm_``, which it also calls, with an infinite limit,
where clipping is off. A user's class may call it earlier (inside ``training_step``), clip in its
own ``_clip_grad_norm``, or put a function of its own in the place of accelerate's: what that does
is seen from the norms around it. What clips elsewhere has clipped before anything is measured.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch

from pilot.probe import Probe


class Watcher(Protocol):
    """Who measures a Trainer's steps."""

    trainer: Any
    probe: Probe
    hides_tensors: bool
    measuring: Callable[[], contextlib.AbstractContextManager[Any]]

    def replace(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        """Put ``method`` in the place of one of ``owner``'s."""
        ...


class Clipping:
    """Watches the clipping of one Trainer; only reads.

    Args:
        watcher: its probe is told when the gradients are there, and what they are clipped to.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher, self._trainer, self._probe = watcher, watcher.trainer, watcher.probe
        self._measured = False
        self._limit: float | None = None  # the lowest norm that this step was clipped to

    def attach(self) -> None:
        """Wrap what clips."""
        trainer, accelerator = self._trainer, self._trainer.accelerator
        clip = functools.partial(self._clip, accelerator.clip_grad_norm_)
        self._watcher.replace(accelerator, "clip_grad_norm_", clip)
        if _clips_by_itself(trainer):
            own = functools.partial(self._clip_by_trainer, trainer._clip_grad_norm)
            self._watcher.replace(trainer, "_clip_grad_norm", own)

    def begin(self) -> None:
        """A micro-batch is about to add to the gradients."""
        self._measured, self._limit = False, None

    def measure(self) -> None:
        """The gradients are all there: take their norms, unless it has been done."""
        if not self._measured:
            if self._watcher.hides_tensors:
                self._probe.norm_given(None)
            else:
                self._probe.grads_ready()
            self._measured = True

    def _clip(
        self, original: Any, parameters: Any, max_norm: float, *rest: Any, **more: Any
    ) -> Any:
        accelerator = self._trainer.accelerator
        if accelerator.scaler is not None:  # once: torch refuses to unscale twice
            accelerator.unscale_gradients()
            accelerator.unscale_gradients = _nothing
        try:
            with self._watcher.measuring():
                if not self._watcher.hides_tensors:
                    self.measure()
            norm = original(parameters, max_norm, *rest, **more)
        finally:
            accelerator.__dict__.pop("unscale_gradients", None)
        with self._watcher.measuring():
            if self._watcher.hides_tensors:
                self._probe.norm_given(norm)
                self._measured = True
            limit = float(max_norm)
            if not (self._watcher.hides_tensors or _is_accelerates(original)):
                self._limit = limit
                self._probe.clipped_to_gradients()
            elif 0.0 < limit < float("inf"):
                self._limit = limit if self._limit is None else min(limit, self._limit)
                self._probe.clipped(self._limit)
        return norm

    def _clip_by_trainer(self, original: Any, *args: Any, **more: Any) -> Any:
        """A Trainer that clips in its own way: how much is seen from the norms around it."""
        is_plain = self._trainer.accelerator.scaler is None
        with self._watcher.measuring():
            if is_plain:  # scaled gradients are measured where they are unscaled
                self.measure()
        norm = original(*args, **more)
        with self._watcher.measuring():
            if is_plain and self._limit is None:
                self._probe.clipped_to_gradients()
        return norm


def _is_accelerates(clip: Any) -> bool:
    """Whether this is accelerate's own method, which clips as torch does."""
    modules = (getattr(clip, "__module__", ""), torch.nn.utils.clip_grad_norm_.__module__)
    return modules == ("accelerate.accelerator", "torch.nn.utils.clip_grad")


def _clips_by_itself(trainer: Any) -> bool:
    """Whether the user's class clips in a way of its own."""
    from transformers import Trainer

    own = getattr(type(trainer), "_clip_grad_norm", None)
    return own is not None and own is not getattr(Trainer, "_clip_grad_norm", None)


def _nothing(*args: Any, **more: Any) -> None:
    """In the place of a call that has been made already."""
