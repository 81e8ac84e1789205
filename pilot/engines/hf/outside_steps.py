"""Exceptions where the tap measures nothing: saving, evaluating, the optimizer's step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pilot.engines.hf.tap import Tap


def hear_outside_steps(tap: Tap, trainer: Any) -> None:
    """Let ``tap`` hear of exceptions also where it measures nothing."""
    calls = [
        (trainer, "_maybe_log_save_evaluate", "evaluation or saving"),
        (trainer.optimizer, "step", "optimizer"),
    ]
    for owner, name, place in calls:
        original = getattr(owner, name, None)
        if original is not None and hasattr(owner, "__dict__"):
            tap.replace(owner, name, _told(tap, original, place))


def _told(tap: Tap, original: Callable[..., Any], place: str) -> Callable[..., Any]:
    """``original``, with its exceptions told of; ``place``: where they are said to be."""

    @functools.wraps(original)  # a scheduler asks for a mark of its own on ``step``
    def told(*args: Any, **more: Any) -> Any:
        before, tap.place = tap.place, place
        with tap.watched():
            result = original(*args, **more)
        tap.place = before
        return result

    return told
