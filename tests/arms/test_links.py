"""Interpolations as text: which keys a leaf is made from."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.arms.links import Link, find_link, is_outside


@pytest.mark.parametrize(
    ("leaf", "sources"),
    [
        ("plain", None),
        (0.5, None),
        (None, None),
        ("${b.c}", ("b.c",)),
        ("${ b.c }", ("b.c",)),
        ("${.other}", ("a.other",)),
        ("${..b.c}", ("b.c",)),
        ("${b[0].c}", ("b.0.c",)),
        ("${b.c}/${.other}/${b.c}", ("b.c", "a.other")),
        ("\\${b.c}", None),
        ("\\\\${b.c}", ("b.c",)),
        ("\\\\\\${b.c}", None),
        ("$b {c}", None),
        ("${now:%H:%M}", None),
        ("${oc.env:HOME}", None),
        ("${oc.env:HOME,'x y'}", None),
        ("${oc.decode:${oc.env:HOME}}", None),
        ("${oc.env:HOME,${b.c}}", ("b.c",)),
        ("${now:%H}-${b.c}", ("b.c",)),
        ("${oc.select:b.c}", ()),
        ("${own.resolver:1}", ()),
        (["x", "${..other}", "${...b.c}"], ("a.other", "b.c")),
        ([1, [2, "${b.c}"]], ("b.c",)),
        ({"x": "${b.c}"}, None),
        ({}, None),
    ],
)
def test_what_a_leaf_is_made_from(leaf: Any, sources: tuple[str, ...] | None) -> None:
    link = find_link({"a": {"leaf": leaf, "other": 1}, "b": {"c": 2}}, "a.leaf")
    assert (None if link is None else link.sources) == sources


def test_inside_an_interpolated_section_and_outside_of_the_tree() -> None:
    tree = {"a": {"copy": "${b.c}"}, "b": {"c": {"d": 1}}}
    assert find_link(tree, "a.copy.d") == Link(text="${b.c}", sources=("b.c.d",))
    assert find_link(tree, "a.nothing") is None
    assert find_link(tree, "b.c.d.e") is None
    assert find_link({}, "a") is None


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        ("${now:%Y}", True),
        ("run-${now:%Y}-${oc.env:HOME}", True),
        ("${oc.decode:${oc.env:HOME}}", True),
        ("${own.resolver:1}", True),  # nobody has registered it: it cannot be made again
        ("${oc.select:b.c}", False),
        ("${now:%Y}-${b.c}", False),
        ("${b.c}", False),
        ("\\${now:%Y}", False),
        ("plain", False),
        ("", False),
    ],
)
def test_what_comes_from_outside_of_the_configuration(text: str, outside: bool) -> None:
    assert is_outside(text) is outside
