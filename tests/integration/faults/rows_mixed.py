# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 38: faults of all kinds, drawn from the seed, on a head and three nodes under load. One seed
is one schedule."""

import contextlib
import os
import signal
import threading
import time
import zlib

import numpy as np
import sheaf
from node_cluster import Cluster, Marks, array_of, expected, is_running, outcome, wait_until
from sheaf import _core

TYPED = (
    sheaf.exceptions.NodeDiedError,
    sheaf.exceptions.WorkerCrashedError,
    sheaf.exceptions.RayActorError,
    sheaf.exceptions.ObjectLostError,
)


@sheaf.remote(num_cpus=0.2)
def marked(path, seed, number):
    Marks.add(path, number)
    time.sleep(0.02)
    return expected(seed, number)


@sheaf.remote(num_cpus=0.2, max_retries=-1)
def make(seed, number, size_bytes):
    return array_of(seed, number, size_bytes)


@sheaf.remote(num_cpus=0.2, max_retries=-1)
def checksum(array):
    return zlib.crc32(array)


@sheaf.remote(num_cpus=0.2)
class Adder:
    def __init__(self):
        self.total = 0

    def add(self):
        self.total += 1
        return self.total


class Load(threading.Thread):
    """A kind of work, again and again until told to stop."""

    def __init__(self, step):
        super().__init__()
        self.step, self.over, self.failure, self.done = step, threading.Event(), None, 0

    def run(self):
        try:
            while not self.over.is_set():
                self.step(self.done)
                self.done += 1
        except BaseException as failure:
            self.failure = failure

    def end(self):
        self.over.set()
        self.join(150)
        assert not self.is_alive(), "a call neither ended nor failed"
        if self.failure:
            raise self.failure


class Nemesis:
    """Draws faults and does them, one after the other. Node 2, which the driver is attached to, is
    never killed."""

    def __init__(self, cluster, run):
        self.cluster, self.random, self.done = cluster, run.random, []

    def strike(self):
        kinds = [
            self.kill_a_worker,
            self.kill_a_node,
            self.stop_a_daemon,
            self.cut_a_link,
            self.lose_one_way,
            self.delay_all,
            self.slow_a_link,
            self.kill_the_head,
        ]
        kind = self.random.choice(kinds)
        begin = time.monotonic()
        kind()
        self.done.append(kind.__name__)
        print(f"{kind.__name__}: {time.monotonic() - begin:.1f} s", flush=True)

    def pause(self, low, high):
        time.sleep(self.random.uniform(low, high))

    def pair(self):
        return self.random.sample([1, 2, 3, 4], 2)

    def kill_a_worker(self):
        place = self.random.choice([2, 3, 4])
        daemon = self.cluster.nodes[place].pid
        workers = sorted(
            row["os_pid"]
            for row in self.cluster.ask(place, "list", "workers")["workers"]
            if row["os_pid"]
        )
        if workers:
            pid = self.random.choice(workers)
            assert pid != daemon
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_a_node(self):
        place = self.random.choice([3, 4])
        lost = self.cluster.crash(place)
        self.pause(0, 1)
        assert self.cluster.start(place, 2).number != lost.number

    def stop_a_daemon(self):
        node = self.cluster.nodes[self.random.choice([1, 3, 4])]
        os.kill(node.pid, signal.SIGSTOP)
        try:
            self.pause(0.5, 2.5)
        finally:
            os.kill(node.pid, signal.SIGCONT)

    def cut_a_link(self):
        self.cluster.network.both(*self.pair(), loss=1.0)
        self.pause(0.2, 2.5)
        self.cluster.network.heal()

    def lose_one_way(self):
        self.cluster.network.rule(*self.pair(), loss=1.0)
        self.pause(0.2, 2.5)
        self.cluster.network.heal()

    def delay_all(self):
        self.cluster.network.all(delay=0.05, jitter=0.05, loss=0.02, duplicate=0.02)
        self.pause(1, 3)
        self.cluster.network.heal()

    def slow_a_link(self):
        self.cluster.network.both(*self.pair(), rate=200_000)
        self.pause(1, 3)
        self.cluster.network.heal()

    def kill_the_head(self):
        head = self.cluster.nodes[1]
        os.kill(head.pid, signal.SIGKILL)
        wait_until(lambda: not is_running(head.pid), what="the head is dead")
        self.pause(0, 0.5)
        self.cluster.start(1, 0, [f"--resume={head.session}"])


def row_38(run):
    seconds = run.count(10, 1800)
    with Cluster(seed=run.seed, cpus=(0, 2, 2, 2)) as cluster:
        cluster.connect(2)
        retried, once = Marks(cluster.directory, "retried"), Marks(cluster.directory, "once")
        adder = Adder.options(resources={"n2": 1}).remote()
        kept = {}
        ends = {"values": 0, "typed errors": 0}

        def tasks(number):
            numbers = range(20 * number, 20 * number + 20)
            calls = [
                marked.options(max_retries=-1, scheduling_strategy="SPREAD").remote(
                    retried.path, run.seed, n
                )
                for n in numbers
            ]
            assert sheaf.get(calls, timeout=120) == [expected(run.seed, n) for n in numbers]

        def tasks_without_retries(number):
            numbers = range(20 * number, 20 * number + 20)
            calls = [
                marked.options(max_retries=0, scheduling_strategy="SPREAD").remote(
                    once.path, run.seed, n
                )
                for n in numbers
            ]
            for n, call in zip(numbers, calls):
                value, error = outcome(call, 120)
                assert isinstance(error, TYPED) or value == expected(run.seed, n), (value, error)
                ends["values" if error is None else "typed errors"] += 1

        def calls_of_an_actor(number):
            values, errors = [], 0
            for call in [adder.add.remote() for _ in range(20)]:
                value, error = outcome(call, 120)
                assert error is None or isinstance(error, TYPED), error
                errors += error is not None
                values += [value] if error is None else []
            assert values == sorted(set(values)), values

        def objects(number):
            made = [
                make.options(scheduling_strategy="SPREAD").remote(run.seed, 4 * number + i, 2 << 20)
                for i in range(4)
            ]
            sums = [checksum.options(scheduling_strategy="SPREAD").remote(array) for array in made]
            for i, (array, crc) in enumerate(zip(made, sums)):
                wanted = array_of(run.seed, 4 * number + i, 2 << 20)
                assert sheaf.get(crc, timeout=120) == zlib.crc32(wanted)
                assert np.array_equal(sheaf.get(array, timeout=120), wanted)

        def keys(number):
            key, value = f"key-{number}", str(expected(run.seed, number)).encode()
            try:
                _core.key_put("faults", key, value, True)
            except (
                sheaf.exceptions.RayError,
                ConnectionError,
                TimeoutError,
                OSError,
                RuntimeError,
            ):
                return  # Not acknowledged.
            kept[key] = value

        loads = [
            Load(step) for step in (tasks, tasks_without_retries, calls_of_an_actor, objects, keys)
        ]
        for load in loads:
            load.start()
        nemesis = Nemesis(cluster, run)
        begin = time.monotonic()
        while time.monotonic() - begin < seconds and not any(load.failure for load in loads):
            nemesis.strike()
            nemesis.pause(0, 0.5)
        cluster.network.heal()
        healed = time.monotonic()
        for load in loads:
            load.end()
        quiet = time.monotonic() - healed
        assert quiet < 40, f"calls ended {quiet} s after the last fault"
        for key, value in kept.items():
            assert bytes(_core.key_get("faults", key) or b"") == value, key
        assert not once.counts() or max(once.counts().values()) == 1
        assert set(retried.counts()) == set(range(20 * loads[0].done))
        wait_until(
            lambda: (
                all(cluster.is_alive(place) for place in cluster.nodes)
                and len(cluster.alive()) == 4
            ),
            what="all nodes are known, and no other",
        )
        figures = ", ".join(
            f"{nemesis.done.count(name)} {name.replace('_', ' ')}"
            for name in sorted(set(nemesis.done))
        )
        run.figures(
            f"{len(nemesis.done)} faults in {seconds} s ({figures}): "
            f"{20 * loads[0].done} calls with retries right, without "
            f"{ends['values']} "
            f"values and {ends['typed errors']} typed errors, {20 * loads[2].done} "
            f"calls of an actor, {4 * loads[3].done} arrays of 2 MiB, "
            f"{len(kept)} keys there; all ended {quiet:.1f} s after the last fault"
        )
