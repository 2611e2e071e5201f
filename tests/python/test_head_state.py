# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a program sees when the control store of its cluster is killed, and when a head goes on with
an older copy of its state."""

import contextlib
import json
import os
import signal
import subprocess
import time

import pytest
import sheaf
from conftest import WAIT_S, joined_cluster, wait_until
from sheaf.cluster_utils import _program
from sheaf.util import state


@pytest.fixture
def cluster():
    """A head without CPUs, and a node where the driver is."""
    with joined_cluster(
        {"num_cpus": 0, "object_store_memory": 64 << 20},
        {"num_cpus": 2, "object_store_memory": 64 << 20},
        beside_head=False,
    ) as made:
        yield made


@sheaf.remote(max_restarts=-1, num_cpus=0)
class Counter:
    def __init__(self):
        self.total = 0

    def add(self):
        self.total += 1
        return self.total

    def pid(self):
        return os.getpid()


def gcs_of(head):
    mark = f"--database={head.session}/gcs.db".encode()
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if name.isdigit() and mark in file.read().split(b"\0"):
                    return int(name)
        except OSError:
            pass
    return 0


def run(*arguments):
    done = subprocess.run(
        [_program(), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SHEAF_STATE_IN_MEMORY": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pid_of(actor):
    """0: it died during the call."""
    try:
        return sheaf.get(actor.pid.remote(), timeout=WAIT_S)
    except sheaf.exceptions.ActorUnavailableError:
        return 0


@contextlib.contextmanager
def head_goes_on_with(cluster, copy):
    """Its session, with the state of `copy`, after the head has been killed."""
    head = cluster.head_node
    directory = os.path.dirname(head.session)
    cluster.remove_node(head, allow_graceful=False)
    session = json.loads(run("gcs", "restore", copy, "--json", "--dir", directory))["session"]
    port = cluster.join_address.rsplit(":", 1)[1]
    said = json.loads(
        run(
            "start",
            "--json",
            "--head",
            f"--dir={directory}",
            f"--resume={session}",
            "--num-cpus=0",
            f"--port={port}",
            "--object-store-memory=64MiB",
        )
    )
    try:
        assert said["session"] == session
        yield
    finally:
        sheaf.shutdown()
        run("stop", "--address", session)


def test_names_actors_and_calls_outlive_the_gcs(cluster):
    named = Counter.options(name="counter", lifetime="detached").remote()
    assert sheaf.get(named.add.remote(), timeout=WAIT_S) == 1
    for number in range(2, 5):
        old = gcs_of(cluster.head_node)
        os.kill(old, signal.SIGKILL)
        begin = time.monotonic()
        assert sheaf.get(named.add.remote(), timeout=WAIT_S) == number  # It asks nobody.
        # These ask the GCS.
        assert sheaf.get(sheaf.get_actor("counter").pid.remote(), timeout=WAIT_S) > 0
        Counter.options(name=f"made-{number}", lifetime="detached").remote()
        assert time.monotonic() - begin < 10
        assert gcs_of(cluster.head_node) not in (0, old)
    cluster.wait_for_nodes()
    for number in range(2, 5):
        assert sheaf.get(sheaf.get_actor(f"made-{number}").add.remote(), timeout=WAIT_S) == 1


def test_an_older_copy_of_the_state_takes_no_living_actor_for_lost(cluster, tmp_path):
    """The actor has died and been started anew since the copy was made: its later life goes on,
    with its state."""
    named = Counter.options(name="counter", lifetime="detached").remote()
    pid = sheaf.get(named.pid.remote(), timeout=WAIT_S)
    copy = str(tmp_path / "copy.db")
    run("gcs", "backup", copy, "--address", cluster.head_node.session)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: sheaf.get(named.pid.remote(), timeout=WAIT_S) != pid)
    pid = sheaf.get(named.pid.remote(), timeout=WAIT_S)
    assert sheaf.get(named.add.remote(), timeout=WAIT_S) == 1
    late = Counter.options(name="late", lifetime="detached").remote()
    assert sheaf.get(late.add.remote(), timeout=WAIT_S) == 1

    with head_goes_on_with(cluster, copy):
        again = sheaf.get_actor("counter")
        assert sheaf.get(again.add.remote(), timeout=WAIT_S) == 2
        # Another node than before, once it is known that the old one is dead.
        assert wait_until(
            lambda: [int(n.node_id[-8:], 16) for n in state.list_nodes() if n.is_head_node]
        )
        wait_until(
            lambda: (
                not any(n.is_head_node for n in state.list_nodes() if int(n.node_id[-8:], 16) == 1)
            )
        )
        assert sheaf.get(again.pid.remote(), timeout=WAIT_S) == pid
        with pytest.raises(ValueError):
            sheaf.get_actor("late")  # Of after the copy.

        @sheaf.remote
        def one():
            return 1

        assert sheaf.get(one.remote(), timeout=WAIT_S) == 1
        Counter.options(
            name="late", lifetime="detached"
        ).remote()  # The name is free, and the numbers of jobs and nodes are new.
        assert sheaf.get(sheaf.get_actor("late").add.remote(), timeout=WAIT_S) == 1


def test_an_actor_that_has_ended_since_an_older_copy_starts_anew(cluster, tmp_path):
    """Its node knows of later incarnations than the copy does, and begins no earlier one."""
    named = Counter.options(name="counter", lifetime="detached").remote()
    pid = sheaf.get(named.pid.remote(), timeout=WAIT_S)
    copy = str(tmp_path / "copy.db")
    run("gcs", "backup", copy, "--address", cluster.head_node.session)
    for _ in range(3):
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid_of(named) not in (0, pid))
        pid = pid_of(named)
    sheaf.kill(named)
    with pytest.raises(sheaf.exceptions.RayActorError):
        sheaf.get(named.pid.remote(), timeout=WAIT_S)

    @sheaf.remote
    def add():  # In another process: this one knows that it is dead.
        return sheaf.get(sheaf.get_actor("counter").add.remote(), timeout=WAIT_S)

    with head_goes_on_with(cluster, copy):
        assert sheaf.get(add.remote(), timeout=2 * WAIT_S) == 1
