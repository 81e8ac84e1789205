"""A representative order: sources in their shares, the length distribution, the extremes early.

Systematic sampling from a list sorted by (source, length, random tie) with a random start is
implicit stratification (Kish 1965, Survey Sampling, ch. 4; Cochran 1977, Sampling Techniques,
ch. 8): a stratum that is contiguous in the list is drawn within one row of its exact share.
"""

from __future__ import annotations

import numpy as np

from pilot.data.order import Ids, permutation, random_words

# Names of the independent random streams under one data_seed.
_TIES, _START, _SHUFFLE, _RARE, _PLACE = 101, 102, 103, 104, 105


def representative_order(
    num_needed: int,
    guaranteed_within: int,
    num_tokens: Ids,
    source: Ids,
    data_seed: int,
    micro_batch_size: int,
) -> Ids:
    """Row ids in drawing order, shape [num_needed]; no row twice within an epoch.

    Whole epochs come first, the rest is a systematic sample. The ``micro_batch_size`` longest rows
    and at least one row of every source stand within the first ``guaranteed_within`` draws, as far
    as those have room (the longest first, then the rarest sources). A row that had to be added
    replaces the row nearest in length of the source that is most over-represented; an extreme or
    the last row of a source is never replaced.

    ``num_tokens`` and ``source`` (a code) have one entry for each row; ``data_seed`` fixes every
    random choice.

    Raises:
        ValueError: no rows although some are needed, or shapes that differ.
    """
    num_rows = len(num_tokens)
    if num_tokens.shape != source.shape or (num_rows == 0 and num_needed > 0):
        raise ValueError(f"cannot draw {num_needed} rows of {num_tokens.shape}/{source.shape}")
    if num_needed <= 0:
        return np.empty(0, dtype=np.int64)
    room = min(num_needed, num_rows, max(0, guaranteed_within))
    parts: list[Ids] = []
    for epoch in range(-(-num_needed // num_rows)):
        size = min(num_rows, num_needed - epoch * num_rows)
        chosen = _systematic(size, num_tokens, source, data_seed, epoch)
        chosen = chosen[permutation(size, data_seed, _SHUFFLE, epoch)]
        if epoch == 0:
            extremes = _extremes(chosen, num_tokens, source, data_seed, micro_batch_size)[:room]
            chosen = _with_extremes(chosen, extremes, num_tokens, source)
            chosen = _move_forward(chosen, extremes, room, data_seed)
        parts.append(chosen)
    return np.concatenate(parts)


def _extremes(
    chosen: Ids, num_tokens: Ids, source: Ids, data_seed: int, micro_batch_size: int
) -> Ids:
    """The longest rows, then a row of every source without one: rarest first, sampled if any."""
    ties = random_words(len(num_tokens), data_seed, _TIES)
    by_length = np.lexsort((ties, num_tokens))[::-1].astype(np.int64)
    longest = by_length[: max(0, micro_batch_size)]
    candidates = np.concatenate([chosen, permutation(len(source), data_seed, _RARE)])
    codes, first = np.unique(source[candidates], return_index=True)
    missing = ~np.isin(codes, source[longest])
    rarest = np.argsort(np.bincount(source)[codes[missing]], kind="stable")
    return np.concatenate([longest, candidates[first[missing][rarest]]])


def _systematic(size: int, num_tokens: Ids, source: Ids, data_seed: int, epoch: int) -> Ids:
    """``size`` different rows, every (rows / size)-th of the sorted list from a random start."""
    num_rows = len(num_tokens)
    ties = random_words(num_rows, data_seed, _TIES, epoch)
    ordered = np.lexsort((ties, num_tokens, source)).astype(np.int64)
    start = int(random_words(1, data_seed, _START, epoch)[0] % np.uint64(num_rows))
    # Whole numbers: the step is at least 1, so no row is drawn twice, and none by rounding.
    return ordered[(np.arange(size, dtype=np.int64) * num_rows + start) // size]


def _with_extremes(chosen: Ids, extremes: Ids, num_tokens: Ids, source: Ids) -> Ids:
    """The sample with the missing extremes in the place of other rows."""
    chosen = chosen.copy()
    planned = np.bincount(source) * (len(chosen) / len(source))
    seen = np.bincount(source[chosen], minlength=len(planned))
    protected = np.isin(chosen, extremes)
    for row in extremes[~np.isin(extremes, chosen)]:
        excess = seen - planned
        free = ~protected & (seen[source[chosen]] > 1)
        if not free.any():  # every row stands alone for its source: only then may one be lost
            free = ~protected
        worst = excess[source[chosen[free]]].max()
        places = np.flatnonzero(free & (excess[source[chosen]] == worst))
        gaps = np.abs(num_tokens[chosen[places]] - num_tokens[row])
        place = places[int(np.argmin(gaps))]
        seen[source[chosen[place]]] -= 1
        seen[source[row]] += 1
        chosen[place], protected[place] = row, True
    return chosen


def _move_forward(order: Ids, extremes: Ids, room: int, data_seed: int) -> Ids:
    """Swap extremes that stand late with random rows that stand within the first ``room``."""
    order = order.copy()
    late = room + np.flatnonzero(np.isin(order[room:], extremes))
    free = np.flatnonzero(~np.isin(order[:room], extremes))
    places = free[permutation(len(free), data_seed, _PLACE)][: len(late)]
    order[places], order[late] = order[late], order[places].copy()
    return order
