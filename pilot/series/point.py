"""One record of a running series: what was logged at a step."""

from __future__ import annotations

from typing import NamedTuple


class Point(NamedTuple):
    """What was logged at ``step``. None = not logged; NaN / inf = logged so.

    ``loss`` in the trainer's own unit, ``grad_norm`` before clipping, ``learning_rate`` the one
    used, ``loss_scale`` of a mixed-precision scaler, ``skipped``: the optimizer did not step.
    A tuple, because one is made per record of logs with hundreds of thousands.
    """

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    learning_rate: float | None = None
    loss_scale: float | None = None
    skipped: bool | None = None
