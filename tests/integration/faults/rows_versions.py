# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 36: nodes and drivers of another version, and nodes that are restarted one after the
other."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import sheaf
from node_cluster import SHEAF, WAIT_S, Cluster, expected, wait_until
from packet_switch import Missing, address_of
from rows_disk import SHIM
from rows_nodes import fails, work

VERSION = b"0.1.0"


def of_another_version(source, target):
    """Copies a program or module so that it says of itself that it is version 9.9.0. How often it
    said its own.

    The number stands in the data, and as an operand of instructions, which write four of its bytes
    at once."""
    with open(source, "rb") as file:
        data = file.read()
    with open(target, "wb") as file:
        file.write(data.replace(VERSION[:4], b"9.9."))
    os.chmod(target, 0o755)
    return data.count(VERSION[:4])


class StrangePeer:
    """A node of a later version (strange_peer.cc): what it says holds fields, methods and kinds of
    frames that nobody knows."""

    def __init__(self, cluster, place, near):
        program = SHIM.with_name("strange_peer")
        if not program.exists():
            raise Missing(f"{program} is not built")
        peer = cluster.nodes[near].number
        addresses = {row["node"]: row["address"] for row in cluster.ask(1, "status")["nodes"]}
        self.process = subprocess.Popen(
            [
                *cluster.network.within(place),
                str(program),
                f"{address_of(place)}:0",
                os.path.join(cluster.directory, "token"),
                f"{address_of(1)}:6379",
                str(peer),
                addresses[peer],
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def said(self):
        line = self.process.stdout.readline()
        assert line, f"the strange node ended with {self.process.wait(10)}"
        return json.loads(line)

    def leave(self):
        out, _ = self.process.communicate("", timeout=60)
        assert self.process.returncode == 0, self.process.returncode
        return json.loads(out)


def in_the_middle(cluster, run, change):
    """`change` while calls run on all nodes: each is right. What it returns, and the number of
    calls."""
    calls = [
        work.options(scheduling_strategy="SPREAD", max_retries=5).remote(run.seed, number)
        for number in range(100)
    ]
    result = change()
    calls += [
        work.options(scheduling_strategy="SPREAD", max_retries=5).remote(run.seed, number)
        for number in range(100, 150)
    ]
    assert sheaf.get(calls, timeout=60) == [expected(run.seed, number) for number in range(150)]
    return result


def rolling_restart(cluster, run):
    """One node after the other is replaced, and the head goes on with what is on its disk, while a
    strange node is a member."""
    place = cluster.network.add()
    strange = StrangePeer(cluster, place, 2)
    said = in_the_middle(cluster, run, strange.said)
    assert "does not know this request" in said["words"] and said["unknown_method"] != 0, said
    assert said["known"] == 0 and said["workers"] > 0 and said["unknown_question"] == 1, said
    assert len(cluster.alive()) == len(cluster.nodes) + 1

    def replace():
        new = cluster.network.add()
        cluster.start(new, 2)
        wait_until(lambda: cluster.is_alive(new), what="the new node is seen")
        old = cluster.nodes[3]
        done = subprocess.run(
            [SHEAF, "stop", f"--address={old.session}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        cluster.expect_end(3)
        return new

    for _ in range(run.count(1, 10)):
        new = in_the_middle(cluster, run, replace)
        cluster.nodes[3] = cluster.nodes.pop(new)
    left = strange.leave()
    assert left["left"] == 0 and left["beats"] > 0, left
    head = cluster.nodes[1]

    def restart_head():
        os.kill(head.pid, signal.SIGKILL)
        wait_until(lambda: not head.is_running(), what="the head ends")
        cluster.start(1, 0, [f"--resume={head.session}"])

    in_the_middle(cluster, run, restart_head)
    wait_until(
        lambda: len(cluster.alive()) == len(cluster.nodes),
        what="the strange node is gone, the others are alive",
    )
    for node in cluster.nodes.values():
        assert node.is_running()
    return (
        f"a strange node was a member ({left['beats']} heartbeats with unknown "
        f"fields answered; an unknown method: '{said['words']}'; 1800 unknown "
        "frames dropped; what it asked was answered), while nodes were replaced "
        "and the head was restarted: all calls right"
    )


def row_36(run):
    """A node and a driver of another version are told so, at once, in words that name both; nobody
    else notices. A node that speaks of what nobody knows is heard as far as it is understood."""
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)
        place = cluster.network.add()
        other = os.path.join(cluster.scratch, "other")
        os.mkdir(other)
        assert of_another_version(shutil.which(SHEAF), os.path.join(other, "sheaf")) > 0
        calls = [work.remote(run.seed, number) for number in range(50)]
        begin = time.monotonic()
        done = subprocess.run(
            [
                *cluster.network.within(place),
                os.path.join(other, "sheaf"),
                "start",
                f"--dir={cluster.directory}",
                f"--host={address_of(place)}",
                "--port=0",
                "--num-cpus=1",
                f"--address={address_of(1)}:6379",
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        said = fails(done, "0.1.0", "9.9.0")
        took = time.monotonic() - begin
        assert took < 20, took
        package = os.path.join(other, "python", "sheaf")
        shutil.copytree(os.path.dirname(sheaf.__file__), package)
        (module,) = [
            name
            for name in os.listdir(package)
            if name.startswith("_core") and name.endswith(".so")
        ]
        assert (
            of_another_version(
                os.path.join(os.path.dirname(sheaf.__file__), module), os.path.join(package, module)
            )
            > 0
        )
        # On one machine the layout of the shared memory decides, not the version: a driver with the
        # same one may work.
        program = (
            f"import sheaf; sheaf.init(address={cluster.nodes[2].session!r}); "
            "print(sheaf.get(sheaf.put('served'), timeout=20))"
        )
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONPATH": os.path.dirname(package)},
        )
        driver = (
            "served"
            if done.stdout.strip() == "served"
            else f"refused ('{fails(done, '0.1.0', '9.9.0')[:100]}')"
        )
        assert sheaf.get(calls, timeout=WAIT_S) == [
            expected(run.seed, number) for number in range(50)
        ]
        assert len(cluster.alive()) == 3
        strange = rolling_restart(cluster, run)
        run.figures(
            f"a node of version 9.9.0 was refused after {took:.1f} s "
            f"('{said[:160]}'), a driver was {driver} within "
            f"{time.monotonic() - begin:.1f} s; "
            f"50 calls meanwhile right; {strange}"
        )
