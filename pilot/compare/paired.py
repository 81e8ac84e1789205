"""Paired statistics between two times or two arms: the same examples, the same steps.

Nothing here needs a model, and a number that is not finite never enters an estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pilot.records import ValidationRecord
from pilot.segments import Segment

if TYPE_CHECKING:
    from pilot.plan import Plan
    from pilot.segments import Segment

# What an arm is called against the baseline.
WORSE, BETTER, SAME = "worse", "better", "no difference"
LARGER, SMALLER = "larger loss, noise unknown", "smaller loss, noise unknown"
DIVERGED, NOT_COMPARED = "diverged", "not compared"

# Fewest examples with supervised tokens whose estimate may decide. Source: simulated ratio
# estimates with no true change exceed 2 plain SE (nominal 2.3 %) in 7 to 27 % of cases with 5
# examples, 5 to 23 % with 8, 3 to 10 % with 64 (normal to log-normal differences); below 8 even
# the corrected factor stays far from nominal.
MIN_EXAMPLES = 8


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A paired difference of two validation losses, in nats per token; positive is worse.

    ``se`` is the standard error over examples; ``num_examples`` and ``num_tokens`` count what was
    compared. ``value`` is NaN when a loss is not finite or no token is supervised; ``se`` is NaN
    then, and also with fewer than two examples. With fewer than ``MIN_EXAMPLES`` both may be known,
    but the difference is not *estimated*: it decides nothing.
    """

    value: float
    se: float
    num_examples: int
    num_tokens: int

    @property
    def estimated(self) -> bool:
        """Whether value and standard error are known, from at least ``MIN_EXAMPLES`` examples."""
        known = math.isfinite(self.value) and math.isfinite(self.se)
        return known and self.num_examples >= MIN_EXAMPLES

    def worse(self, num_se: float) -> bool:
        """Above zero by more than ``critical(num_se)`` SE; never when not estimated."""
        return self.estimated and self.value > critical(num_se, self.num_examples) * self.se

    def better(self, num_se: float) -> bool:
        """Below zero by more than ``critical(num_se)`` SE; never when not estimated."""
        return self.estimated and self.value < -critical(num_se, self.num_examples) * self.se


def critical(num_se: float, num_examples: int) -> float:
    """The t quantile at the tail probability that ``num_se`` has under the normal distribution.

    The standard error comes from ``num_examples`` >= 2 examples, so v = n - 1 degrees of freedom.
    Two terms of the Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5): with k = ``num_se``,
    k + (k^3 + k) / 4v + (5 k^5 + 16 k^3 + 3 k) / 96 v^2. At k = 2: 2.43 for n = 8, 2.02 for n = 64.
    """
    k, free = num_se, num_examples - 1
    first = (k**3 + k) / (4 * free)
    return k + first + (5 * k**5 + 16 * k**3 + 3 * k) / (96 * free**2)


def paired_difference(reference: ValidationRecord, other: ValidationRecord) -> Difference:
    """The loss of ``other`` minus the loss of ``reference`` on the same examples.

    The ratio estimator (Cochran, Sampling Techniques, 1977, chapter 6): with d_i the difference of
    the loss sums of example i and n_i its supervised tokens, D = sum d_i / sum n_i, residuals
    e_i = d_i - D n_i and SE = sqrt(n / (n - 1) * sum e_i^2) / sum n_i. So a long example counts by
    its tokens, and what all examples share (one ratio for all) adds no error. Examples without
    a supervised token are left out. Constant inputs give the value with SE 0.

    Raises:
        ValueError: the two did not validate the same examples of the same set.
    """
    if reference.name != other.name:
        raise ValueError(f"two validation sets: {reference.name!r} and {other.name!r}")
    if reference.token_counts != other.token_counts:
        raise ValueError(
            f"validation set {other.name!r} had other examples: {_counted(reference)} "
            f"({reference.at}) and {_counted(other)} ({other.at})"
        )
    for record in (reference, other):
        if len(record.loss_sums) != len(record.token_counts):
            raise ValueError(f"{record.name!r}: losses and token counts differ in number")
    counts = np.asarray(reference.token_counts, dtype=np.float64)
    sums = [np.asarray(r.loss_sums, dtype=np.float64)[counts > 0] for r in (reference, other)]
    counts = counts[counts > 0]
    num, tokens = len(counts), int(counts.sum())
    if num == 0 or not (np.isfinite(sums[0]).all() and np.isfinite(sums[1]).all()):
        return Difference(value=math.nan, se=math.nan, num_examples=num, num_tokens=tokens)
    change = sums[1] - sums[0]
    value = float(change.sum() / tokens)
    residual = change - value * counts
    se = math.nan
    if num > 1:
        largest = float(np.abs(residual).max())  # squares of 1e200 and more would overflow
        scaled = residual / largest if largest > 0 else residual
        se = largest * math.sqrt(num / (num - 1) * float(scaled @ scaled)) / tokens
    return Difference(value=value, se=se, num_examples=num, num_tokens=tokens)


def mean_loss(record: ValidationRecord) -> float:
    """The token-weighted mean loss; NaN when no token is supervised or a loss is missing.

    Not finite when the loss of an example with supervised tokens is not.
    """
    if len(record.loss_sums) != len(record.token_counts) or not sum(record.token_counts):
        return math.nan
    pairs = zip(record.loss_sums, record.token_counts, strict=True)
    return sum(total for total, count in pairs if count > 0) / sum(record.token_counts)


def t_quantile(error_rate: float, free: float) -> float:
    """The two-sided t quantile: |t| exceeds it with probability ``error_rate``.

    ``free`` are the degrees of freedom, > 0 (not always whole; infinity is the normal quantile).
    """
    from scipy.special import stdtrit

    return float(stdtrit(free, 1.0 - error_rate / 2.0))


def half_width(
    se: float, free: float, error_rate: float, *, noise_sd: float = 0.0, num_runs: int = 0
) -> float:
    """Half the interval of a difference of two runs: t * sqrt(se^2 + 2 noise_sd^2).

    ``se`` has ``free`` degrees of freedom, the run-to-run ``noise_sd`` has ``num_runs`` - 1; both
    runs of the difference carry it, hence the 2. The degrees of freedom of the sum are those of
    Welch and Satterthwaite (Satterthwaite, Biometrics Bulletin 2, 1946):
    (a + b)^2 / (a^2 / free + b^2 / (num_runs - 1)) with a = se^2, b = 2 noise_sd^2. They can exceed
    ``free``, so noise could narrow the interval of few blocks: never below that of ``se`` alone.
    Nothing random (both 0): 0. Infinity or NaN in, infinity or NaN out.
    """
    noise = math.sqrt(2.0) * noise_sd
    total = math.hypot(se, noise)
    if total == 0.0 or not math.isfinite(total):
        return total
    shares = (se / total) ** 2, (noise / total) ** 2  # as shares: 1e200 squared overflows
    uncertain = shares[0] ** 2 / free
    if noise > 0.0:
        uncertain += shares[1] ** 2 / (num_runs - 1)
    alone = t_quantile(error_rate, free) * se
    return max(alone, t_quantile(error_rate, 1.0 / uncertain) * total)


def word_for(value: float, half: float, least: float, *, noise_known: bool) -> str:
    """The word for a difference ``value`` (positive: a larger loss) with its half interval.

    An effect is above its interval **and** at least ``least``, the smallest difference that anyone
    would act on. Run-to-run noise only widens an interval: where already the interval without it
    says "no difference", no noise is needed to say so. NaN: not compared.
    """
    if math.isnan(value) or math.isnan(half):
        return NOT_COMPARED
    if not (abs(value) > half and abs(value) >= least):
        return SAME
    if noise_known:
        return WORSE if value > 0 else BETTER
    return LARGER if value > 0 else SMALLER


def peak_segment(plan: Plan) -> Segment | None:
    """The plan's segment at the peak rate, if it has one."""
    return next((segment for segment in plan.segments if segment.name == "peak"), None)


def _counted(record: ValidationRecord) -> str:
    return f"{len(record.token_counts)} examples, {sum(record.token_counts)} tokens"
