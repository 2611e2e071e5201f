# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Fixtures for pytest. In a conftest.py: `pytest_plugins = ["sheaf.testing"]`.

sheaf_cluster    a node of the test module's own; the package, for convenience
sheaf_options    what that node is started with: override the fixture to change it
sheaf_fresh      the same node for one test alone, where a test changes what others see
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import sheaf

OPTIONS: dict[str, Any] = {"num_cpus": 2, "object_store_memory": 128 << 20, "log_to_driver": False}


@pytest.fixture(scope="session")
def sheaf_options() -> dict[str, Any]:
    """The arguments of init for the nodes of the tests."""
    return dict(OPTIONS)


def _node(options: dict[str, Any]) -> Iterator[Any]:
    if sheaf.is_initialized():
        raise RuntimeError(
            "a session exists already: a test, or code it imports, has called sheaf.init()"
        )
    sheaf.init(**{"address": "local", **options})
    try:
        yield sheaf
    finally:
        sheaf.shutdown()


@pytest.fixture(scope="module")
def sheaf_cluster(sheaf_options: dict[str, Any]) -> Iterator[Any]:
    """A node for the tests of a module."""
    yield from _node(sheaf_options)


@pytest.fixture()
def sheaf_fresh(sheaf_options: dict[str, Any]) -> Iterator[Any]:
    """A node for one test."""
    yield from _node(sheaf_options)
