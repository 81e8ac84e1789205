"""Order statistics of a moving window, cheap enough to keep at every step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque

# From the median of |differences| of neighbours to the standard deviation of one value (Gaussian).
DIFF_TO_SIGMA = 1.4826 * 2.0**-0.5


def median(ordered: list[float]) -> float:
    """The median of an ascending, non-empty list."""
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return 0.5 * (ordered[half - 1] + ordered[half])


def mid(values: list[float] | deque[float]) -> float:
    """The median of any non-empty values; sorts a copy."""
    return median(sorted(values))


class Rolling:
    """The last ``size`` finite values, in order of arrival and of size.

    ``push`` costs two binary searches and two moves in a list of at most ``size``; the median and
    every quantile are then a look-up.
    """

    __slots__ = ("_arrived", "_size", "ordered")

    def __init__(self, size: int) -> None:
        self._arrived: deque[float] = deque()
        self._size = size
        self.ordered: list[float] = []

    def __len__(self) -> int:
        return len(self.ordered)

    def push(self, value: float) -> None:
        """Add ``value`` (finite), drop the oldest when the window is full."""
        ordered, arrived = self.ordered, self._arrived
        if len(arrived) == self._size:
            del ordered[bisect_left(ordered, arrived.popleft())]
        arrived.append(value)
        insort(ordered, value)

    def median(self) -> float:
        """The median of the window, which must not be empty."""
        ordered = self.ordered
        half = len(ordered) >> 1
        if len(ordered) & 1:
            return ordered[half]
        return 0.5 * (ordered[half - 1] + ordered[half])

    def quantile(self, share: float) -> float:
        """The value with ``share`` of the window below it (nearest rank)."""
        return self.ordered[min(int(share * len(self.ordered)), len(self.ordered) - 1)]

    def first_above(self, floor: float) -> float:
        """The smallest value above ``floor``, 0.0 when there is none."""
        place = bisect_right(self.ordered, floor)
        return self.ordered[place] if place < len(self.ordered) else 0.0

    def clear(self) -> None:
        """Forget everything."""
        self._arrived.clear()
        self.ordered.clear()
