"""Whether the loss has a level at all: a language-model loss has, a policy loss has not."""

from __future__ import annotations

import math


class Objective:
    """Levels mean something for ``lm``, ``preference``, ``other`` and ``unknown``, not for ``rl``.

    Except for ``lm``, what is logged overrules: one negative loss, or two losses of exactly 0.0
    beside a live grad norm, and the rules that compare with a level are off from there on. A
    cross-entropy or a preference loss is never negative, and never 0 while it has a gradient; a
    policy loss is both.
    """

    def __init__(self, objective: str) -> None:
        self.levelled = objective != "rl"
        self._fixed = objective in ("lm", "rl")
        self._zeros = 0

    def see(self, loss: float, grad_norm: float | None) -> bool:
        """Take one finite loss in; true when this record turned the rules off."""
        if self._fixed or not self.levelled:
            return False
        if loss == 0.0 and grad_norm is not None and math.isfinite(grad_norm) and grad_norm > 0.0:
            self._zeros += 1
        if loss < 0.0 or self._zeros >= 2:
            self.levelled = False
            return True
        return False
