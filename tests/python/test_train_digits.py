# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Distributed training gives what one process gives, also when a worker is killed on the way: the program of the examples."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S

PROGRAM = pathlib.Path(__file__).parents[2] / "examples" / "python" / "train_digits.py"


@pytest.fixture(scope="module")
def digits():
    spec = importlib.util.spec_from_file_location("train_digits", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["train_digits"] = module
    sheaf.shutdown()
    path, sys.path = sys.path, [str(PROGRAM.parent), *sys.path]  # Workers find it there.
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield module
    sheaf.shutdown()
    sys.path = path
    del sys.modules["train_digits"]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_weights_are_those_of_one_process(digits, workers):
    result, weights = digits.fit(workers, steps=45)
    assert [row["step"] for row in result.metrics_history] == list(range(1, 46))
    np.testing.assert_allclose(weights, digits.alone(digits.load()[0], 45), rtol=0, atol=1e-12)


def test_the_same_when_workers_are_killed_on_the_way(digits):
    expected = digits.alone(digits.load()[0], 60)
    for kill_at in np.random.default_rng().integers(1, 60, 2).tolist():
        result, weights = digits.fit(3, steps=60, kill_at=kill_at)
        assert [row["step"] for row in result.metrics_history] == list(range(1, 61)), kill_at
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12, err_msg=f"killed at step {kill_at}")


def test_the_program_says_what_happened():
    done = subprocess.run([sys.executable, PROGRAM, "--epochs", "6"], capture_output=True, text=True, timeout=4 * WAIT_S)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"recognised: (0\.\d+)", done.stdout).group(1)) > 0.93
    assert "steps: 132, each once" in done.stdout and re.search(r"rank 2 \(pid \d+\) is lost", done.stdout)
    assert re.search(r"\(3 kept, 1 new\) begin from checkpoint_\d+, step \d+\n  .*is done, \d+\.\d\d s after the loss", done.stdout), done.stdout
    assert float(re.search(r"weights as in one process, to (\S+)", done.stdout).group(1)) < 1e-12
