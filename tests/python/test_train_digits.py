# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Distributed training gives what one process gives, also when a worker is killed on the way: the
program of the examples."""

import contextlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S

PROGRAM = pathlib.Path(__file__).parents[2] / "examples" / "python" / "train_digits.py"


@contextlib.contextmanager
def program():
    """The example as a module, which workers find as well; clusters are joined inside."""
    spec = importlib.util.spec_from_file_location("train_digits", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["train_digits"] = module
    path, sys.path = sys.path, [str(PROGRAM.parent), *sys.path]
    try:
        yield module
    finally:
        sys.path = path
        del sys.modules["train_digits"]


@pytest.fixture(scope="module")
def digits():
    sheaf.shutdown()
    with program() as module, sheaf.init(num_cpus=4, log_to_driver=False):
        yield module


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_weights_are_those_of_one_process(digits, workers):
    result, weights = digits.fit(workers, steps=45)
    assert [row["step"] for row in result.metrics_history] == list(range(1, 46))
    np.testing.assert_allclose(weights, digits.alone(digits.load()[0], 45), rtol=0, atol=1e-12)


def run(*arguments):
    environment = {name: value for name, value in os.environ.items() if name != "SHEAF_ADDRESS"}
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=8 * WAIT_S,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_program_says_what_happened():
    said = run("--epochs", "6")
    assert float(re.search(r"accuracy +\S+ (\d+\.\d) %", said).group(1)) > 93
    assert "each step once, and the weights of one process to" in said and re.search(
        r"rank 2 \(pid \d+\) is lost", said
    ), said
    assert re.search(
        r"\(3 kept, 1 new\) begin from checkpoint_\d+, step \d+\n.*is done, "
        r"\d+\.\d\d s after the loss",
        said,
    ), said


def test_the_program_survives_kills_at_random_steps():
    assert re.search(
        r"2 of 66 steps: each step once, the weights of one process to .*\n  recovery",
        run("--kills", "2"),
    )
