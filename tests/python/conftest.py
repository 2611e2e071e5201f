# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One node per test module, with four CPUs, two GPUs that nothing looks at, and two of a custom
resource."""

import contextlib
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import sheaf
from sheaf.cluster_utils import Cluster

# The tests of sheaf.data need both (tests/python/CMakeLists.txt).
_WANTED = ("pyarrow", "pandas")
collect_ignore_glob = [] if all(map(importlib.util.find_spec, _WANTED)) else ["data/*"]

WAIT_S = 30  # How long a test waits for what should come at once.


def wait_until(condition, what="it did not happen in time", seconds=WAIT_S):
    """Returns what `condition` gives as soon as that is true. It fails with `what` (words, or a
    function that gives them) when that takes longer than `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.01)
    return found


def state_of(stat: pathlib.Path) -> str:
    """The letter of a process or thread, by its `stat` below /proc; "X" where it has ended, which
    the system may say at the opening or at the read."""
    try:
        return stat.read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def is_running(pid: int) -> bool:
    return state_of(pathlib.Path(f"/proc/{pid}/stat")) not in "ZX"


def stop(pid: int) -> None:
    """SIGSTOP, and returns when all its threads stand still: one that runs meanwhile goes on for a
    moment."""
    os.kill(pid, signal.SIGSTOP)
    threads = pathlib.Path(f"/proc/{pid}/task")
    wait_until(
        lambda: all(state_of(stat) in "TX" for stat in threads.glob("*/stat")),
        f"process {pid} does not stop",
    )


@contextlib.contextmanager
def joined_cluster(head, *others, beside_head=True):
    """A cluster of a head and others, each given by the arguments of Cluster.add_node. This process
    is a driver beside the head, or else beside the first of the others. Ends all of it."""
    sheaf.shutdown()
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        for other in others:
            made.add_node(**other)
        address = made.address if beside_head else made.worker_nodes[0].session
        sheaf.init(address=address, log_to_driver=False)
        made.wait_for_nodes()
        yield made
    finally:
        sheaf.shutdown()
        made.shutdown()


def python_with(*modules: str) -> str:
    """An interpreter that has these: that of ./do peer hosts, or this one. Skips the test where it
    lacks one."""
    python = os.environ.get("SHEAF_HOSTS_PYTHON", sys.executable)
    for module in modules:
        ask = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({module!r}))"
        if subprocess.run([python, "-c", ask]).returncode:
            pytest.skip(f"{module} is not installed: ./do peer hosts installs it")
    return python


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
