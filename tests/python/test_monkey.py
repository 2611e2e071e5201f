# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A few of monkey.py's programs, the same each time, on one node and on three. MONKEY_SEED draws
others; `./do soak monkey` runs them for an hour."""

import os
import pathlib
import subprocess
import sys

import pytest

MONKEY = pathlib.Path(__file__).with_name("monkey.py")


@pytest.mark.parametrize("nodes", [1, 3])
def test_random_programs_do_what_their_model_says(nodes):
    command = [
        sys.executable,
        str(MONKEY),
        f"--nodes={nodes}",
        "--programs=4",
        f"--seed={os.environ.get('MONKEY_SEED', '1')}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
