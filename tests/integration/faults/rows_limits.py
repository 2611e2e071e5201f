# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 34: nodes and drivers that may open few files, find no port, or may start no process more."""

import contextlib
import json
import os
import subprocess
import sys
import time

import sheaf
from node_cluster import SHEAF, WAIT_S, Cluster, expected, outcome, wait_until
from packet_switch import address_of
from rows_nodes import Holder, fails, work


def take_descriptors(but):
    """All that this process may still open, but so many."""
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    for _ in range(but):
        os.close(taken.pop())
    return taken


def poor_driver(session, seed):
    """A program that may open 64 files, and has opened nearly all of them: before it joins, and
    while it calls."""
    from sheaf import exceptions  # Python opens modules where they are used first.

    sheaf.init(address=session, log_to_driver=False)
    assert outcome(work.options(resources={"n3": 1}).remote(seed, 0)) == (expected(seed, 0), None)
    sheaf.shutdown()
    refused = []
    for but in (0, 1, 2, 4):  # Joining fails somewhere else each time.
        taken = take_descriptors(but)
        try:
            sheaf.init(address=session, log_to_driver=False)
            sheaf.shutdown()
        except (exceptions.RayError, RuntimeError, OSError, ValueError) as error:
            refused.append(f"{type(error).__name__}: {error}")
        finally:
            for descriptor in taken:
                os.close(descriptor)
    sheaf.init(address=session, log_to_driver=False)
    assert sheaf.get(work.options(resources={"n2": 1}).remote(seed, 0), timeout=WAIT_S) == expected(
        seed, 0
    )
    taken = take_descriptors(0)
    # New workers, near and far, an object too large for a message, and an actor: what each needs
    # there may be none for.
    calls = [
        work.options(resources={f"n{2 + number % 2}": 1}).remote(seed, number)
        for number in range(40)
    ]
    actor = Holder.options(resources={"n2": 1}).remote()
    process = actor.process.remote()
    ends = [outcome(call) for call in calls]
    assert all(
        error is not None or value == expected(seed, number)
        for number, (value, error) in enumerate(ends)
    )
    _, no_actor = outcome(process)
    for descriptor in taken:
        os.close(descriptor)
    kinds = sorted(
        {type(error).__name__ for _, error in [*ends, (None, no_actor)] if error is not None}
    )
    assert sheaf.get(
        work.options(resources={"n3": 1}).remote(seed, 99), timeout=WAIT_S
    ) == expected(seed, 99)
    del actor
    sheaf.shutdown()
    print(
        json.dumps(
            {"refused": refused, "values": sum(error is None for _, error in ends), "kinds": kinds}
        ),
        flush=True,
    )


def few_descriptors(cluster, run, place):
    """A node and a driver that may open 64 files."""
    begin = time.monotonic()
    done = cluster.try_start(place, 2, prefix=["prlimit", "--nofile=64:64"])
    if done.returncode == 0:  # It found that enough.
        said = json.loads(done.stdout)
        calls = [
            work.options(resources={f"n{place}": 1}).remote(run.seed, number)
            for number in range(20)
        ]
        ends = [outcome(call) for call in calls]
        assert all(
            error is not None or value == expected(run.seed, number)
            for number, (value, error) in enumerate(ends)
        )
        subprocess.run(
            [SHEAF, "stop", "--force", f"--address={said['session']}"],
            capture_output=True,
            timeout=60,
            check=True,
        )
        words = (
            f"64 descriptors: {sum(error is None for _, error in ends)} values and "
            f"{sum(error is not None for _, error in ends)} "
            "typed errors of 20 calls"
        )
    else:
        words = (
            f"64 descriptors: refused after {time.monotonic() - begin:.1f} s "
            f"('{fails(done, 'open files')[:100]}')"
        )
    said, took = alone(cluster, run, "poor_driver", ["prlimit", "--nofile=64:64"])
    assert len(said["refused"]) > 0, "a driver joined without any descriptor"
    return (
        f"{words}; a driver with 64, all taken: {len(said['refused'])} of 4 times "
        f"refused ('{said['refused'][0][:100]}'), then {said['values']} "
        f"values of 40 calls, errors {said['kinds']}, in {took:.1f} s"
    )


def alone(cluster, run, function, prefix=(), *more):
    """What a function of this module prints as JSON in a driver of its own on node 2, and how long
    it took."""
    begin = time.monotonic()
    program = (
        f"import rows_limits; rows_limits.{function}({cluster.nodes[2].session!r}, "
        f"{run.seed}, *{more!r})"
    )
    done = subprocess.run(
        [*prefix, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), time.monotonic() - begin


def no_port(cluster, place):
    begin = time.monotonic()
    second = subprocess.run(
        [
            *cluster.network.within(1),
            SHEAF,
            "start",
            "--head",
            f"--dir={cluster.directory}",
            f"--host={address_of(1)}",
            "--port=6379",
            "--num-cpus=1",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    fails(second, "6379")
    # All ports that the kernel gives away in this namespace are two, and both are taken.
    taken = subprocess.Popen(
        [
            *cluster.network.within(place),
            sys.executable,
            "-c",
            f"""
import socket, sys
open('/proc/sys/net/ipv4/ip_local_port_range', 'w').write('41000 41001')
held = [socket.create_server((host, port)) for port in (41000, 41001) for host in ('{address_of(place)}', '127.0.0.1')]
print('taken', flush=True)
sys.stdin.read()
""",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert taken.stdout.readline() == "taken\n"
    done = cluster.try_start(place, 2)
    said = fails(done, "port")
    took = time.monotonic() - begin
    taken.communicate("")
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not cluster.processes(place), 10)
    assert not cluster.processes(place), cluster.processes(place)
    return f"no port: refused in {took:.1f} s ('{said[:100]}')"


def row_34(run):
    """64 descriptors, no free port, no more processes: an error that says so, no hang, and the
    others go on."""
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)
        for number in range(run.count(1, 5)):
            # Places are not used again: one of them has no ports left.
            words = [
                few_descriptors(cluster, run, cluster.network.add()),
                no_port(cluster, cluster.network.add()),
                no_processes(cluster, run, number),
            ]
            assert sheaf.get([work.remote(run.seed, n) for n in range(10)], timeout=WAIT_S) == [
                expected(run.seed, n) for n in range(10)
            ]
            wait_until(
                lambda: len(cluster.alive()) == 3,
                what="the node that was stopped is known to be gone",
            )
        run.figures(f"{number + 1} rounds, the last: {'; '.join(words)}")


class ProcessLimit:
    """A group whose processes may start none more while it is `closed`. OSError: there is no such
    thing here."""

    FOLDER = "/sys/fs/cgroup/pids"

    def __init__(self, name):
        self.path = os.path.join(self.FOLDER, f"sheaf-fault-{os.getpid()}-{name}")
        os.mkdir(self.path)

    def take(self, pids):
        for pid in pids:
            self._write("cgroup.procs", pid)

    def close(self):
        with open(os.path.join(self.path, "pids.current"), encoding="utf-8") as file:
            self._write("pids.max", int(file.read()))

    def open(self):
        self._write("pids.max", "max")

    def remove(self):
        """Its processes go back to where all are."""
        with open(os.path.join(self.path, "cgroup.procs"), encoding="utf-8") as file:
            pids = file.read().split()
        for pid in pids:
            with (
                contextlib.suppress(OSError),
                open(os.path.join(self.FOLDER, "cgroup.procs"), "w", encoding="utf-8") as file,
            ):
                file.write(pid)

        def gone():
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
            return not os.path.exists(self.path)

        wait_until(gone, what="the group is empty")

    def _write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
            file.write(str(value))


def lonely_driver(session, seed):
    """A program that may start no thread and no process: before it joins, and while it calls."""
    from sheaf import exceptions

    limit = ProcessLimit("driver")
    try:
        limit.take([os.getpid()])
        limit.close()
        refused = ""
        try:
            sheaf.init(address=session, log_to_driver=False)
            sheaf.shutdown()
        except (exceptions.RayError, RuntimeError, OSError) as error:
            refused = f"{type(error).__name__}: {error}"
        limit.open()
        sheaf.init(address=session, log_to_driver=False)
        limit.close()
        ends = [
            outcome(work.options(resources={f"n{2 + number % 2}": 1}).remote(seed, number))
            for number in range(10)
        ]
        assert all(
            error is not None or value == expected(seed, number)
            for number, (value, error) in enumerate(ends)
        )
        limit.open()
        sheaf.shutdown()
    finally:
        limit.remove()
    print(
        json.dumps({"refused": refused, "values": sum(error is None for _, error in ends)}),
        flush=True,
    )


def no_processes(cluster, run, number):
    """A node that may start no process more: its calls wait for its workers or fail, those of
    others go on. And such a driver."""
    try:
        limit = ProcessLimit(number)
    except OSError as error:
        return f"no group that limits processes here ({error.strerror})"
    try:
        node = cluster.nodes[3]
        limit.take(cluster.processes(3))
        limit.close()
        begin = time.monotonic()
        calls = [work.options(resources={"n3": 1}).remote(run.seed, n) for n in range(4)]
        ends = [outcome(call, 60) for call in calls]
        took = time.monotonic() - begin
        assert all(
            error is not None or value == expected(run.seed, n)
            for n, (value, error) in enumerate(ends)
        )
        kinds = sorted({type(error).__name__ for _, error in ends if error is not None})
        assert node.is_running() and cluster.is_alive(3)
        limit.open()
        assert sheaf.get(
            work.options(resources={"n3": 1}).remote(run.seed, 77), timeout=WAIT_S
        ) == expected(run.seed, 77)
    finally:
        limit.open()
        limit.remove()
    said, _ = alone(cluster, run, "lonely_driver")
    return (
        f"no process more: {kinds or 'values'} after {took:.1f} s, and values when "
        "there was room again; a driver that may start no thread: "
        f"{said['refused'] or 'joins'}, later {said['values']} values of 10 calls"
    )
