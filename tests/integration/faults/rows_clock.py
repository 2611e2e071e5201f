# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 30: the wall clocks of nodes, workers and a driver jump, each by itself, to an hour or a day
ahead or behind and back."""

import asyncio
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import threading
import time

import sheaf
from node_cluster import SHEAF, WAIT_S, Cluster, Marks, expected, wait_until
from packet_switch import Missing
from rows_partitions import Recorder, marked, one_at_a_time, soft

SHIM = pathlib.Path(
    os.environ.get("FAULT_CLOCK_SHIM")
    or pathlib.Path(shutil.which(SHEAF) or SHEAF).resolve().parents[1]
    / "tests/integration/faults/libclock_shim.so"
)
HOUR_S, DAY_S = 3600, 86400
JUMPS_S = (0, HOUR_S, -HOUR_S, DAY_S, -DAY_S)
NEAR_S = 60  # Of the wall clock, between two looks: less than this is no jump.


class WallClock:
    """Of those that are started with `environment`."""

    def __init__(self, directory, name):
        if not SHIM.exists():
            raise Missing(f"{SHIM} is not built")
        self.path = os.path.join(directory, f"clock-{name}")
        self.ahead = 0
        self.set(0)
        self.environment = {"LD_PRELOAD": str(SHIM), "FAULT_CLOCK": self.path}

    def set(self, seconds):
        with open(self.path, "r+b" if os.path.exists(self.path) else "w+b") as file:
            os.pwrite(file.fileno(), struct.pack("q", seconds * 10**9), 0)
        self.ahead = seconds


class Jumps:
    """How often the wall clock of this process has jumped."""

    def __init__(self):
        self.count, self.last = 0, time.time() - time.monotonic()

    def look(self):
        ahead = time.time() - time.monotonic()
        self.count += abs(ahead - self.last) > NEAR_S
        self.last = ahead


@sheaf.remote(num_cpus=0.1, max_retries=0)
def nap(seed, number, seconds, path):
    """Its value, and how long it slept. A mark, if the wall clock jumped meanwhile."""
    jumps, begin = Jumps(), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - begin
    jumps.look()
    if jumps.count:
        Marks.add(path, number)
    return expected(seed, number), took


@sheaf.remote(num_cpus=0.1, max_retries=2)
def fails_twice(path, seed, number):
    """Its retries wait between attempts."""
    Marks.add(path, number)
    if (
        sum(
            call == number
            for call, _, _ in Marks.RECORD.iter_unpack(pathlib.Path(path).read_bytes())
        )
        < 3
    ):
        os._exit(1)
    return expected(seed, number)


@sheaf.remote(num_cpus=0.1)
class Sleeper:
    async def nap(self, seconds):
        begin = time.monotonic()
        await asyncio.sleep(seconds)
        return time.monotonic() - begin


def in_time(what, asked, took):
    """A wait of `asked` seconds took this many, by the monotonic clock: no less, and no jump
    more."""
    assert asked - 0.001 <= took < asked + WAIT_S, f"{what} of {asked} s took {took} s"


def driver(session: str, seed: int, path: str, once: str, jumped: str) -> None:
    """A program whose clock jumps too: waits of all sorts, until its input ends."""
    sheaf.init(address=session, log_to_driver=False, namespace="faults")
    over, wrong = threading.Event(), []
    done = {"timeouts": 0, "naps": 0, "async naps": 0, "retried calls": 0, "calls of an actor": 0}
    jumps = Jumps()
    actor = sheaf.get_actor("recorder")
    sleeper = Sleeper.options(resources={"n3": 1}).remote()
    never = nap.options(resources={"n2": 1}).remote(seed, 0, 3600, jumped)

    def time_out(number):
        asked = (0.2, 1.0, 2.0)[number % 3]
        begin = time.monotonic()
        if number % 2:
            ready, _ = sheaf.wait([never], timeout=asked)
            assert not ready
        else:
            try:
                raise AssertionError(
                    f"the call that has no end gave {sheaf.get(never, timeout=asked)}"
                )
            except sheaf.exceptions.GetTimeoutError:
                pass
        in_time("a timeout", asked, time.monotonic() - begin)
        done["timeouts"] += 1
        jumps.look()

    def sleep(number):
        asked = (0.0, 0.5, 1.5)[number % 3]
        value, took = sheaf.get(
            nap.options(resources={f"n{2 + number % 2}": 1}).remote(seed, number, asked, jumped),
            timeout=WAIT_S + asked,
        )
        assert value == expected(seed, number)
        in_time("a sleep of a task", asked, took)
        done["naps"] += 1

    def sleep_in_loop(number):
        in_time("a sleep of an event loop", 0.7, sheaf.get(sleeper.nap.remote(0.7), timeout=WAIT_S))
        done["async naps"] += 1

    def retry(number):
        assert sheaf.get(
            fails_twice.options(resources={"n3": 1}).remote(path, seed, number), timeout=2 * WAIT_S
        ) == expected(seed, number)
        done["retried calls"] += 1

    def call(number):
        assert sheaf.get(actor.accept.remote(number), timeout=WAIT_S) == number + 2
        done["calls of an actor"] += 1
        Marks.add(once, number)
        time.sleep(0.01)

    def repeat(step):
        number = 0
        try:
            while not over.is_set():
                step(number)
                number += 1
        except BaseException as error:
            wrong.append(f"{step.__name__}: {type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=repeat, args=(step,))
        for step in (time_out, sleep, sleep_in_loop, retry, call)
    ]
    for thread in threads:
        thread.start()
    print("running", flush=True)
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join(3 * WAIT_S)
        assert not thread.is_alive(), "a wait did not end"
    sheaf.cancel(never, force=True)
    print(json.dumps({"done": done, "wrong": wrong, "jumps": jumps.count}), flush=True)


def is_shimmed(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        return SHIM.name in file.read()


def row_30(run):
    """No timer fires early or late, no node dies, and one that does is noticed as ever."""
    jumps = run.count(5, 60)
    with Cluster(seed=run.seed, cpus=()) as cluster:
        clocks = {}
        for place, cpus in ((1, 0), (2, 2), (3, 2), (4, 1)):
            clocks[place] = WallClock(cluster.scratch, place)
            cluster.start(cluster.network.add(), cpus, environment=clocks[place].environment)
        clocks["driver"] = WallClock(cluster.scratch, "driver")
        cluster.connect(2)
        assert all(is_shimmed(node.pid) for node in cluster.nodes.values())
        accepted, retried, once, jumped = (
            Marks(cluster.directory, name) for name in ("accepted", "retried", "once", "jumped")
        )
        actor = Recorder.options(
            name="recorder",
            num_cpus=0.1,
            lifetime="detached",
            max_restarts=-1,
            scheduling_strategy=soft(cluster.nodes[3]),
        ).remote(accepted.path)
        assert sheaf.get(actor.accept.remote(-1), timeout=WAIT_S) == 1
        program = (
            f"import rows_clock; rows_clock.driver({cluster.nodes[2].session!r}, "
            f"{run.seed}, {retried.path!r}, {once.path!r}, {jumped.path!r})"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | clocks["driver"].environment,
        )
        assert process.stdout.readline() == "running\n"
        wait_until(lambda: len(once.all()) > 3, what="the driver's calls run")
        done = 0
        while done < jumps or not jumped.all():  # Until a task has met one.
            assert done < jumps + 100, "no task has met a jump: this run shows nothing"
            done += 1
            for clock in clocks.values():
                if run.random.random() < 0.7:
                    clock.set(
                        run.random.choice([ahead for ahead in JUMPS_S if ahead != clock.ahead])
                    )
            time.sleep(run.random.uniform(0.3, 1.5))
            assert len(cluster.alive()) == 4 and process.poll() is None
        time.sleep(1)
        said = json.loads(process.communicate(timeout=4 * WAIT_S)[0])
        assert process.returncode == 0 and not said["wrong"], said
        assert all(said["done"].values()), f"this run shows nothing: {said}"
        assert len(cluster.alive()) == 4 and one_at_a_time(accepted) == 1
        assert all(
            "declared dead" not in node.log() and "is ended" not in node.log()
            for node in cluster.nodes.values()
        )
        # A death is noticed as ever, by clocks that are far from each other.
        for clock, ahead in zip(clocks.values(), JUMPS_S):
            clock.set(ahead)
        lost = cluster.crash(4)
        known = wait_until(
            lambda: lost.node_id not in cluster.alive(), what="the node is known to be dead"
        )
        assert known < 15, known  # Five seconds are promised; the machine may be busy.
        assert sheaf.get(
            marked.options(resources={"n3": 1}).remote(retried.path, run.seed, 10**6),
            timeout=WAIT_S,
        ) == expected(run.seed, 10**6)
        sheaf.kill(actor)
        words = ", ".join(f"{count} {name}" for name, count in said["done"].items())
        run.figures(
            f"{done} times the clocks of three nodes, the head and a driver jumped, "
            f"to +-1 h or +-1 day ahead or back: {words}, all in time and right, "
            f"which the driver met {said['jumps']} times and its tasks "
            f"{len(jumped.all())} times; "
            "no node lost, nor an actor; a node that was killed then was known to "
            f"be dead after {known:.1f} s"
        )
