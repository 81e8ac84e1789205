"""Whether the loss has a level at all: a language-model loss has, a policy loss has not."""

from __future__ import annotations

import math

from pilot.series.limits import POLICY_RECORDS, POLICY_SHARE, POLICY_START


class Objective:
    """Levels mean something for ``lm``, ``preference``, ``other`` and ``unknown``, not for ``rl``.

    For ``other`` and ``unknown`` what is logged overrules: where at least three records, and a
    tenth of all so far, are negative, or exactly 0.0 beside a live grad norm, the rules that
    compare with a level are off from there on. A zero counts only among the first 16 records: a
    policy loss is at zero from the start, a supervised one has to fall to it, and goes on having a
    level then. A few negative records are glitches.
    """

    def __init__(self, objective: str) -> None:
        self.levelled = objective != "rl"
        self._fixed = objective in ("lm", "rl", "preference")
        self._odd = 0

    def see(self, loss: float, grad_norm: float | None, records: int) -> bool:
        """Take a loss <= 0 in, the last of so many ``records``; true when it turned the rules off.

        ``records`` counts the finite losses.
        """
        if self._fixed or not self.levelled:
            return False
        live = grad_norm is not None and math.isfinite(grad_norm) and grad_norm > 0.0
        if loss < 0.0 or (loss == 0.0 and live and records <= POLICY_START):
            self._odd += 1
            if self._odd >= max(POLICY_RECORDS, POLICY_SHARE * records):
                self.levelled = False
                return True
        return False
