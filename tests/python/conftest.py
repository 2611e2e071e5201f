# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One node per test module, with four CPUs, two GPUs that nothing looks at, and two of a custom
resource."""

import os
import pathlib
import signal
import time

import pytest
import sheaf

WAIT_S = 30  # How long a test waits for what should come at once.


def stop(pid: int) -> None:
    """SIGSTOP, and returns when all its threads stand still: one that runs meanwhile goes on for a
    moment."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + WAIT_S
    while any(
        stat.read_text().rpartition(")")[2].split()[0] != "T"
        for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
    ):
        assert time.monotonic() < deadline, f"process {pid} does not stop"


@pytest.fixture(scope="module")
def node():
    sheaf.init(
        num_cpus=4,
        num_gpus=2,
        resources={"slot": 2},
        object_store_memory=256 << 20,
        log_to_driver=False,
    )
    yield sheaf
    sheaf.shutdown()
