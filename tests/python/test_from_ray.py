# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""docs/from_ray.md says what the package says, and finds what is absent, ignored or refused."""

import pathlib
import subprocess
import sys

import from_ray
from conftest import WAIT_S

PROGRAM = pathlib.Path(from_ray.__file__)


def test_the_page_is_current():
    """In a process of its own: it asks init for things that only init without a node answers."""
    done = subprocess.run(
        [sys.executable, PROGRAM, "--print"],
        capture_output=True,
        text=True,
        timeout=6 * WAIT_S,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == from_ray.PAGE.read_text(), "run ./do python tests/python/from_ray.py"


def test_members_of_what_is_absent_are_not_listed():
    listed = {(n.module, n.name): n.kind for n in from_ray.names()}
    assert listed["ray.util.iter", "from_items"] == "absent"
    assert listed["ray.util.state", "StateApiClient"] == "absent"
    assert ("ray.util.state", "StateApiClient.get") not in listed
    assert listed["ray.util", "ActorPool"] == listed["ray", "wait"] == "same"


def test_what_options_take_is_learnt_from_their_refusals():
    assert from_ray.wanted("task", "num_cpus") == "a number that is not negative"
    assert from_ray.wanted("task", "max_retries") == (
        "a number, or -1 for no bound; at most 2^31 - 1"
    )
    assert from_ray.wanted("actor", "resources") == "a dict of amounts, as {'slot': 1}"
    assert from_ray.wanted("method", "tensor_transport") == "-"
    assert {"num_cpus", "max_restarts", "concurrency_group"} <= from_ray.options_that_are_read()
    assert "tensor_transport" not in from_ray.options_that_are_read()
