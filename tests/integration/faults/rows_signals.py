# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 32: signals that arrive all the time, in a driver, its worker and the daemons; Ctrl-C; and
the word to end a node."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib

import sheaf
from node_cluster import SHEAF, WAIT_S, Cluster, array_of, expected, is_running, wait_until
from packet_switch import address_of

# All of these are handled by the driver; a worker or daemon ignores them by default.
TO_DRIVERS = (
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGALRM,
    signal.SIGWINCH,
    signal.SIGURG,
)
TO_OTHERS = (signal.SIGCHLD, signal.SIGWINCH, signal.SIGURG, signal.SIGCONT)


@sheaf.remote(num_cpus=0.1, max_retries=0)
def checksum(seed, number, array):
    return expected(seed, number), zlib.crc32(array)


@sheaf.remote(num_cpus=0.1)
class Adder:
    def __init__(self):
        self.total = 0

    def add(self):
        self.total += 1
        return self.total


@sheaf.remote(num_cpus=0.1, max_retries=3)
def slow(seed, number, seconds):
    time.sleep(seconds)
    return expected(seed, number)


def driver(session: str, seed: int, seconds: float) -> None:
    """A program of its own: put, get, tasks and an actor's calls, while signals rain on it."""
    heard = [0]

    def hear(*_):
        heard[0] += 1

    for number in TO_DRIVERS:
        signal.signal(number, hear)
    sheaf.init(address=session, log_to_driver=False)
    adder = Adder.options(resources={"n3": 1}).remote()
    total = number = 0
    print("running", flush=True)
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        array = array_of(seed, number, 300_000)
        there = checksum.options(resources={f"n{2 + number % 2}": 1}).remote(
            seed, number, sheaf.put(array)
        )
        calls = [adder.add.remote() for _ in range(20)]
        assert sheaf.get(there, timeout=WAIT_S) == (expected(seed, number), zlib.crc32(array))
        assert sheaf.get(calls, timeout=WAIT_S) == list(range(total + 1, total + 21))
        total += 20
        number += 1
    print(json.dumps([number, total, heard[0]]), flush=True)
    # Ctrl-C in a wait that nothing ends.
    forever = slow.options(resources={"n3": 1}).remote(seed, 0, 3600)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("waiting", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        sheaf.get(forever)
        raise SystemExit(3)
    print("interrupted", flush=True)
    sys.stdin.readline()


def start_driver(cluster, run, seconds):
    program = (
        f"import rows_signals; rows_signals.driver({cluster.nodes[2].session!r}, "
        f"{run.seed}, {seconds})"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )


class Rain(threading.Thread):
    def __init__(self, run, driver_pid, others):
        super().__init__()
        self.random, self.driver_pid, self.others = run.random, driver_pid, others
        self.over, self.sent = threading.Event(), 0

    def run(self):
        while not self.over.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.driver_pid, self.random.choice(TO_DRIVERS))
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(self.others), self.random.choice(TO_OTHERS))
            self.sent += 2
            time.sleep(0.0005)


def row_32(run):
    seconds = run.count(4, 120)
    with Cluster(seed=run.seed) as cluster:
        process = start_driver(cluster, run, seconds)
        assert process.stdout.readline() == "running\n"
        others = [pid for pid in cluster.processes() if pid != process.pid]
        rain = Rain(run, process.pid, others)
        rain.start()
        line = process.stdout.readline()
        rain.over.set()
        rain.join()
        assert line.startswith("["), f"the driver ended: {process.wait(10)}"
        calls, total, heard = json.loads(line)
        assert heard > 100, heard
        assert process.stdout.readline() == "waiting\n"
        time.sleep(0.5)  # In the wait, most likely; before it is as good.
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n", process.wait(10)
        interrupted = time.monotonic() - begin
        assert interrupted < 2, (
            interrupted
        )  # A tenth of a second is promised; the machine may be busy.
        process.communicate("\n", timeout=WAIT_S)
        assert process.returncode == 0, process.returncode
        assert all(is_running(node.pid) for node in cluster.nodes.values())

        # The word to end: a node in the foreground ends in order, and what it ran is done
        # elsewhere.
        place = cluster.network.add()
        node = subprocess.Popen(
            [
                *cluster.network.within(place),
                SHEAF,
                "start",
                "--block",
                f"--dir={cluster.directory}",
                "--num-cpus=2",
                f"--host={address_of(place)}",
                "--port=0",
                f"--resources=n{place}:100",
                "--object-store-memory=64MiB",
                f"--address={address_of(1)}:6379",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        cluster.connect(2)
        wait_until(lambda: len(cluster.alive()) == 4, what="the node in the foreground has joined")
        running = [
            slow.options(scheduling_strategy="SPREAD").remote(run.seed, number, 0.5)
            for number in range(30)
        ]
        wait_until(
            lambda: sheaf.wait(running, num_returns=len(running), timeout=0)[0], what="work runs"
        )
        begin = time.monotonic()
        node.send_signal(signal.SIGTERM)
        _, said = node.communicate(timeout=WAIT_S)
        ended = time.monotonic() - begin
        assert node.returncode == 0, (node.returncode, said)
        assert sheaf.get(running, timeout=WAIT_S) == [
            expected(run.seed, number) for number in range(30)
        ]
        wait_until(lambda: not cluster.processes(place), what="its processes are gone")
        wait_until(lambda: len(cluster.alive()) == 3, what="the others know that it is gone")
        run.figures(
            f"{rain.sent} signals in {seconds} s, {heard} handled by the driver: "
            f"{calls} tasks and {total} calls of an actor right; Ctrl-C in a "
            f"get after {interrupted * 1e3:.0f} ms; a node told to end did so after "
            f"{ended:.2f} s with status 0, its work done elsewhere"
        )
