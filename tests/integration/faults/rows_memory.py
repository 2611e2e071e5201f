# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 29: a node with little memory (a control group), and calls that take ever more of it."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import zlib

import sheaf
from node_cluster import WAIT_S, Cluster, Marks, array_of, expected, outcome, wait_until
from packet_switch import Missing
from rows_partitions import Waiting
from sheaf import exceptions

MIB = 1 << 20
LIMIT_MIB = 384
ATTEMPTS = 4  # The first and three more, whatever max_retries says.
GROW = "held = []\nwhile True:\n    held.append(bytearray({step} << 20))\n    time.sleep({pause})\n"


class MemoryLimit:
    """A group whose processes have so much memory, all together. Missing: there is no such thing
    here."""

    FOLDER = "/sys/fs/cgroup/memory"

    def __init__(self, limit_bytes):
        self.path = os.path.join(self.FOLDER, f"sheaf-fault-{os.getpid()}")
        try:
            os.mkdir(self.path)
            with open(
                os.path.join(self.path, "memory.limit_in_bytes"), "w", encoding="utf-8"
            ) as file:
                file.write(str(limit_bytes))
        except OSError as error:
            self.remove()
            raise Missing(f"no control group that limits memory: {error}") from None

    @property
    def prefix(self):
        """In front of a command: it and its children belong to the group."""
        return ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh"]

    def kills(self) -> int:
        """By the kernel, in this group."""
        with open(os.path.join(self.path, "memory.oom_control"), encoding="utf-8") as file:
            return int(dict(line.split() for line in file)["oom_kill"])

    def remove(self):
        def gone():
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
            return not os.path.exists(self.path)

        wait_until(gone, what="the group is empty")


def grow(step, pause):
    """Takes `step` MiB at a time, without an end."""
    exec(GROW.format(step=step, pause=pause), {"time": time})


@sheaf.remote(num_cpus=0.1)
def runaway(path, number, step, pause):
    Marks.add(path, number)
    grow(step, pause)


@sheaf.remote(num_cpus=0.1, max_retries=0)
def careless(path, number, step):
    """Its child runs away; it tells how that ended."""
    Marks.add(path, number)
    return subprocess.run(
        [sys.executable, "-c", "import time\n" + GROW.format(step=step, pause=0.005)], check=False
    ).returncode


@sheaf.remote(num_cpus=0.1)
class Grower:
    def __init__(self, path):
        Marks.add(path, 0)

    def here(self):
        return os.getpid()

    def grow(self, step, pause):
        grow(step, pause)


@sheaf.remote(num_cpus=0.1, max_restarts=0)
class Neighbour:
    """Has more memory than the watch disregards, and does no harm."""

    def __init__(self, seed):
        self.seed, self.array, self.total = seed, array_of(seed, 0, 80 * MIB), 0

    def add(self):
        self.total += 1
        return self.total

    def checksum(self):
        return zlib.crc32(self.array)


@sheaf.remote(num_cpus=0.1, max_retries=0)
def small(seed, number):
    time.sleep(0.02)
    return expected(seed, number)


class Others(threading.Thread):
    """Calls beside those that run away, on the same node: each has its value."""

    def __init__(self, run, neighbour):
        super().__init__()
        self.seed, self.neighbour = run.seed, neighbour
        self.over, self.failure, self.done = threading.Event(), None, 0

    def run(self):
        try:
            while not self.over.is_set():
                task, added = (
                    small.options(resources={"n3": 1}).remote(self.seed, self.done),
                    self.neighbour.add.remote(),
                )
                assert sheaf.get(task, timeout=WAIT_S) == expected(self.seed, self.done)
                self.done += 1
                assert sheaf.get(added, timeout=WAIT_S) == self.done
        except BaseException as failure:
            self.failure = failure

    def end(self):
        self.over.set()
        self.join(2 * WAIT_S)
        assert not self.is_alive(), "a call beside those that ran away did not end"
        if self.failure:
            raise self.failure


def run_away(cluster, run, marks, number, kinds):
    """One round."""
    step, pause = run.random.choice(
        [(64, 0.0), (4, 0.005)]
    )  # Faster than anybody can look, or slow enough.

    def at(task, **options):
        return task.options(resources={"n3": 1}, **options)

    def judged(call, attempts, numbered):
        value, error, _ = Waiting("a call that takes all memory", call, 90).ended()
        assert isinstance(error, exceptions.OutOfMemoryError), (value, error)
        assert "memory" in str(error), error
        kinds.append("the kernel" if "killed by the kernel" in str(error) else "the watch")
        assert marks.counts()[numbered] == attempts, (attempts, marks.counts()[numbered])

    judged(at(runaway, max_retries=0).remote(marks.path, 10 * number, step, pause), 1, 10 * number)
    if run.long:
        judged(
            at(runaway, max_retries=1).remote(marks.path, 10 * number + 1, step, pause),
            2,
            10 * number + 1,
        )
    judged(
        at(runaway, max_retries=-1).remote(marks.path, 10 * number + 2, step, pause),
        ATTEMPTS,
        10 * number + 2,
    )
    born = Marks(cluster.directory, f"born-{number}")
    grower = at(Grower, max_restarts=1).remote(born.path)
    first = sheaf.get(grower.here.remote(), timeout=WAIT_S)
    value, error = outcome(grower.grow.remote(step, pause), 90)
    assert isinstance(error, (exceptions.OutOfMemoryError, exceptions.RayActorError)), (
        value,
        error,
    )
    wait_until(
        lambda: outcome(grower.here.remote())[0] not in (None, first),
        what="the actor is there again",
    )
    value, error = outcome(grower.grow.remote(step, pause), 90)
    assert isinstance(error, (exceptions.OutOfMemoryError, exceptions.RayActorError)), (
        value,
        error,
    )
    value, error = outcome(grower.here.remote())
    assert isinstance(error, (exceptions.OutOfMemoryError, exceptions.RayActorError)), (
        value,
        error,
    )
    assert len(born.all()) == 2, "an actor that may be made twice was made more often"
    # A child of a worker: it alone ends, or the worker with it.
    value, error = outcome(at(careless).remote(marks.path, 10 * number + 3, step), 90)
    assert value == -9 or isinstance(error, exceptions.OutOfMemoryError), (value, error)
    assert marks.counts()[10 * number + 3] == 1


def row_29(run):
    """Only the offender dies, its error says why, its retries are bounded; the node, its other
    workers and their memory stay."""
    limit = MemoryLimit(LIMIT_MIB * MIB)
    try:
        on_a_small_node(run, limit)
    finally:
        limit.remove()


def on_a_small_node(run, limit):
    rounds, kinds = run.count(1, 10), []
    with Cluster(seed=run.seed, cpus=(0, 2)) as cluster:
        cluster.start(cluster.network.add(), 2, prefix=limit.prefix)
        node = cluster.nodes[3]
        cluster.connect(2)
        marks = Marks(cluster.directory)
        neighbour = Neighbour.options(resources={"n3": 1}).remote(run.seed)
        crc = sheaf.get(neighbour.checksum.remote(), timeout=WAIT_S)
        stored = sheaf.put(array_of(run.seed, 1, MIB))
        others = Others(run, neighbour)
        others.start()
        begin = time.monotonic()
        for number in range(rounds):
            run_away(cluster, run, marks, number, kinds)
            assert not others.failure, others.failure
        seconds = time.monotonic() - begin
        others.end()
        assert others.done > 0 and zlib.crc32(array_of(run.seed, 0, 80 * MIB)) == crc == sheaf.get(
            neighbour.checksum.remote(), timeout=WAIT_S
        )
        assert zlib.crc32(sheaf.get(stored)) == zlib.crc32(array_of(run.seed, 1, MIB))
        assert node.is_running() and cluster.is_alive(3)
        kills = limit.kills()
        run.figures(
            f"{LIMIT_MIB} MiB for a node, {rounds} rounds in {seconds:.0f} s: "
            f"{sum(marks.counts().values())} calls that took all of it, with "
            f"retries at most {ATTEMPTS} "
            f"attempts each, ended in OutOfMemoryError ({kinds.count('the watch')} "
            f"by the watch, {kinds.count('the kernel')} by the kernel, which killed "
            f"{kills} "
            f"processes), actors after {rounds} restarts of 1; {others.done} calls "
            "of tasks and of an actor with 80 MiB beside them right"
        )
