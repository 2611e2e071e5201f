# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 33: random bytes in what a worker may write of the memory that it shares with others, while
it works."""

import contextlib
import os
import threading
import time
import zlib

import numpy as np
import sheaf
from node_cluster import WAIT_S, Cluster, array_of, expected, outcome, wait_until

MIB = 1 << 20
DATA_OFFSET = (
    2 * MIB
)  # Of an arena: below it lie its header and the headers of objects (object_store/layout.h).
RING_HEADERS = 768  # Bytes, at the start of a segment of rings (shm/ring.h).
KINDS = ("ring headers", "object headers", "leased extents", "process pages")


def shared_with(pid) -> dict:
    """kind: the ranges of this process's memory that others read and it may write."""
    found = {kind: [] for kind in KINDS}
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            if fields[1] != "rw-s" or "/memfd:sheaf-" not in line:
                continue
            begin, end = (int(text, 16) for text in fields[0].split("-"))
            offset, name = int(fields[2], 16), line.split("/memfd:sheaf-")[1].split()[0]
            if name == "rings":
                found["ring headers"].append((begin, begin + RING_HEADERS))
            elif name == "arena":
                found["object headers" if offset < DATA_OFFSET else "leased extents"].append(
                    (begin, end)
                )
            elif name == "process":
                found["process pages"].append((begin, end))
    return found


class Scribbler:
    def __init__(self, run):
        self.random, self.written = run.random, dict.fromkeys(KINDS, 0)

    def bytes(self):
        size = self.random.choice((1, 2, 4, 8, 8, 16))
        return self.random.choice((bytes(size), b"\xff" * size, self.random.randbytes(size)))

    def scribble(self, pid, kind, times):
        """As often as asked, or until the process has ended or moved what it wrote to."""
        ranges = shared_with(pid)[kind]
        if not ranges:
            return
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for _ in range(times):
                begin, end = self.random.choice(ranges)
                words = self.bytes()
                # Half of the writes near the start, where what is in use lies.
                reach = min(end - begin, self.random.choice((4096, end - begin)))
                os.pwrite(
                    memory.fileno(), words, begin + self.random.randrange(reach - len(words) + 1)
                )
                self.written[kind] += 1


@sheaf.remote(num_cpus=0.1, max_restarts=0)
class Worker:
    """Makes objects, reads others' and keeps some."""

    def __init__(self, seed):
        self.seed, self.kept = seed, []

    def process(self):
        return os.getpid()

    def small(self, number):
        return expected(self.seed, number)

    def large(self, number, size_bytes):
        return array_of(self.seed, number, size_bytes)

    def put(self, number, size_bytes):
        self.kept = [*self.kept[-3:], sheaf.put(array_of(self.seed, number, size_bytes))]
        return self.kept[-1:]

    def checksum(self, array):
        return zlib.crc32(array)


class Neighbours(threading.Thread):
    """What must not notice: another worker, its objects, and those of the driver."""

    def __init__(self, run):
        super().__init__()
        self.seed, self.over, self.failure, self.done = run.seed, threading.Event(), None, 0
        self.worker = Worker.options(resources={"n2": 1}).remote(run.seed)
        self.objects = []  # (reference, checksum)
        for number, size in enumerate((20_000, 200_000, 2 * MIB)):
            array = array_of(self.seed, number, size)
            theirs = sheaf.get(self.worker.put.remote(number, size), timeout=WAIT_S)[0]
            self.objects += [(sheaf.put(array), zlib.crc32(array)), (theirs, zlib.crc32(array))]
        self.views = [(sheaf.get(reference), checksum) for reference, checksum in self.objects]

    def check(self):
        for reference, checksum in self.objects:
            assert zlib.crc32(sheaf.get(reference, timeout=WAIT_S)) == checksum, (
                "a neighbour's object has changed"
            )
        for view, checksum in self.views:
            assert zlib.crc32(view) == checksum, "a neighbour's bytes have changed under its reader"

    def run(self):
        try:
            while not self.over.is_set():
                reference, checksum = self.objects[self.done % len(self.objects)]
                calls = [
                    self.worker.small.remote(self.done),
                    self.worker.checksum.remote(reference),
                    self.worker.large.remote(self.done, 100_000),
                ]
                small, crc, large = sheaf.get(calls, timeout=WAIT_S)
                assert (small, crc) == (expected(self.seed, self.done), checksum)
                assert np.array_equal(large, array_of(self.seed, self.done, 100_000))
                self.done += 1
        except BaseException as failure:
            self.failure = failure

    def end(self):
        self.over.set()
        self.join(4 * WAIT_S)
        assert not self.is_alive(), "a neighbour's call did not end"
        if self.failure:
            raise self.failure


def scribble_on(run, scribbler, neighbours, kind, times, ends):
    """One offender, from its first call to its end."""
    offender = Worker.options(resources={"n2": 1}).remote(run.seed)
    pid = sheaf.get(offender.process.remote(), timeout=WAIT_S)
    shared = sheaf.get(offender.put.remote(0, 100_000), timeout=WAIT_S) + sheaf.get(
        offender.put.remote(1, 2 * MIB), timeout=WAIT_S
    )
    calls = []

    def call():
        number = len(calls)
        reference, _ = run.random.choice(
            neighbours.objects[::2]
        )  # The driver's: of two workers that share rings both would end.
        calls.append(
            run.random.choice(
                [
                    lambda: offender.small.remote(number),
                    lambda: offender.large.remote(number, 200_000),
                    lambda: offender.large.remote(number, 2 * MIB),
                    lambda: offender.put.remote(number, 100_000),
                    lambda: offender.checksum.remote(reference),
                ]
            )()
        )

    for _ in range(4):
        call()
    with contextlib.suppress(OSError, ValueError):  # It has ended, or let go of what it wrote.
        for _ in range(4):
            scribbler.scribble(pid, kind, times // 4)
            call()
            time.sleep(run.random.uniform(0, 0.005))
    for reference in (
        *calls,
        *shared,
    ):  # Of any value: they are the offender's. But there is an end.
        try:
            _, error = outcome(reference, 2 * WAIT_S)
        except AssertionError:
            raise
        except Exception:
            end = "values that cannot be read"
        else:
            end = "values" if error is None else type(error).__name__
        ends[end] = ends.get(end, 0) + 1
    sheaf.kill(offender)


def row_33(run):
    """The offender is killed or its calls end in typed errors; nobody else notices, and nothing is
    left of it."""
    rounds = run.count(15, 500)
    with Cluster(seed=run.seed, cpus=(0, 2), store_mib=128) as cluster:
        cluster.connect(2)
        scribbler, ends = Scribbler(run), {}
        neighbours = Neighbours(run)
        neighbours.start()
        try:
            for number in range(rounds):
                scribble_on(
                    run,
                    scribbler,
                    neighbours,
                    KINDS[number % len(KINDS)],
                    run.random.choice((4, 40, 400)),
                    ends,
                )
                assert not neighbours.failure, neighbours.failure
                neighbours.check()
        finally:
            neighbours.end()
        assert all(scribbler.written.values()), f"nothing was written there: {scribbler.written}"
        assert cluster.nodes[2].is_running() and cluster.is_alive(2)
        wait_until(
            lambda: (
                sum(row["state"] == "ACTOR" for row in cluster.ask(2, "list", "workers")["workers"])
                <= 1
            ),
            what="the offenders are gone",
        )
        refused = cluster.metric(2, "sheaf_bad_frames_total")
        done, worker = neighbours.done, neighbours.worker
        neighbours.objects, neighbours.views, neighbours.worker = [], [], None
        sheaf.kill(worker)
        run.figures(
            f"{rounds} offenders, {sum(scribbler.written.values())} writes "
            f"({', '.join(f'{count} in {kind}' for kind, count in scribbler.written.items())}): "
            "of their calls and "
            "objects "
            f"{', '.join(f'{count} {name}' for name, count in sorted(ends.items()))}; "
            f"{refused:.0f} frames refused by the raylet; {done} rounds of calls of "
            "a "
            "neighbour, all its objects and the driver's right"
        )
