# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Each public name of Ray (tests/peer/answers/surface.json, recorded) is the same here, or has a
reason in tests/peer/surface_reasons.py."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peer"))

import compare_surface


@pytest.fixture(scope="module")
def names():
    return compare_surface.compared()


def test_each_name_that_differs_has_a_reason(names):
    without = [n for n in names if n.kind != "same" and not n.reason]
    assert not without, "\n".join(
        f"{n.module} {n.name}: {n.kind}; Ray: {n.ray}; Sheaf: {n.sheaf}" for n in without
    )


def test_each_reason_is_needed(names):
    assert not compare_surface.stale(names)


def test_names_are_many(names):
    """A dump that lost its modules would agree with everything."""
    assert sum(n.kind == "same" for n in names) > 800
    assert {"ray", "ray.util.state", "ray.exceptions", "what init gives"} <= {
        n.module for n in names
    }


def test_what_differs_is_told_from_what_does_not():
    agree = compare_surface.agree
    assert agree("function (a, *, b=1)", "function (a, *, b=1, c=2)")
    assert agree("method (self, **kwargs)", "method (self, **given)")
    assert agree("method (self, a)", "method (self, /, a)")
    assert agree("class (a, b)", "class (a, b=None)")
    assert not agree("function (a, *, b=1)", "function (a, *, b=2)")
    assert not agree("function (a, b)", "function (b, a)")
    assert not agree("function (a)", "function (a, /)")
    assert not agree("method (self, a)", "method (self, a, /)")
    assert not agree("function (a, b)", "function (a, **others)")
    assert not agree("class (a); is ValueError", "class (a); is KeyError")
    assert not agree("class (); has __len__", "class ()")
    assert not agree("value 1", "value 2") and not agree("value 1", "")
    assert agree("enum {'A': 0}", "enum {'A': 0, 'B': 1}")
