from __future__ import annotations

import math

import pytest

from pilot.report.words import clean, human_bytes, human_secs, number, one_line
from tests.report.parts import CLEAN_EVIL, EVIL


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.2149, "3.21"), (1234.4, "1234"), (0.0, "0"), (1e60, "1.0e+60"), (-2e-5, "-2.0e-05"),
     (math.nan, "nan"), (-math.inf, "-inf"), (None, "-")],
)  # fmt: skip
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_units() -> None:
    assert [human_secs(s) for s in (0.04, 9.96, 59.6, 62, 3600 * 2 + 300, math.nan, None)] == [
        "0.0s", "10s", "1m00s", "1m02s", "2h05m", "unknown", "unknown",
    ]  # fmt: skip
    assert [human_bytes(b) for b in (0, 999, 1000, 12_345_678, 98e9, 999_999, None)] == [
        "0 bytes", "999 bytes", "1 kB", "12.3 MB", "98 GB", "1 MB", "unknown",
    ]  # fmt: skip


def test_foreign_text_is_harmless() -> None:
    assert clean(EVIL) == CLEAN_EVIL
    assert clean("a\tb\r\nc\rd") == "a\tb\ncd"
    assert one_line("  a\n\n b\tc ") == "a b c"
    assert one_line("abcdefgh", 6) == "abc..."
