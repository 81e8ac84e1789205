from __future__ import annotations

from pilot.tracking.names import free_name


def test_names_are_legal_and_differ() -> None:
    assert free_name("/a//b..c(d)", []) == "_a_b_c_d_"
    assert free_name("a(", ["a_", "a__2"]) == "a__3"
    assert free_name("", []) == "_"
