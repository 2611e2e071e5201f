# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows 6 and 25: borrowers that die, and a node that is slow in all that it does."""

import contextlib
import os
import signal
import threading
import time
import zlib

import sheaf
from node_cluster import WAIT_S, Cluster, array_of, expected, outcome, wait_until
from rows_disk import with_shim

MIB = 1 << 20


@sheaf.remote(num_cpus=0.1, max_restarts=0)
class Holder:
    """Borrows references, passes them on, and may be killed at any moment."""

    def __init__(self):
        self.kept = {}

    def process(self):
        return os.getpid()

    def keep(self, number, boxed):
        self.kept[number] = boxed[0]

    def pass_on(self, number, boxed, other):
        return sheaf.get(other.keep.remote(number, boxed))

    def checksum(self, number):
        return zlib.crc32(sheaf.get(self.kept[number], timeout=WAIT_S))

    def drop(self, number):
        self.kept.pop(number, None)

    def take_and_drop(self, boxed):
        return zlib.crc32(sheaf.get(boxed[0]))


class Left:
    """In words, once somebody asks: what should be gone and is not."""

    def __init__(self, cluster, number):
        self.cluster, self.number = cluster, number

    def __str__(self):
        return (
            f"no object is left after round {self.number}: "
            f"{[self.cluster.ask(place, 'memory') for place in (2, 3, 4)]}"
        )


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def row_6(run):
    """A borrower passes a reference on and dies; another drops it and dies at once. The owner
    lives; its counts are exact."""
    rounds = run.count(6, 100)
    passed = dropped = 0
    with Cluster(seed=run.seed, cpus=(0, 2, 2, 2)) as cluster:
        cluster.connect(2)
        last = Holder.options(resources={"n4": 1}).remote()
        sheaf.get(last.process.remote(), timeout=WAIT_S)

        late = (
            set()
        )  # What the dead one's last call, which may be on its way still, hands to `last`.

        def nothing_left():
            for number in late:
                sheaf.get(last.drop.remote(number), timeout=WAIT_S)
            # The owner may keep one empty place in the store of its node, to put the next object
            # into.
            stored = [cluster.ask(place, "status")["store"]["objects"] for place in (2, 3, 4)]
            owned = [
                row for row in cluster.ask(2, "list", "objects")["objects"] if row["size_bytes"] > 0
            ]
            return stored[0] <= 1 and stored[1:] == [0, 0] and not owned

        for number in range(rounds):
            size = run.random.choice([1, 2, 4]) * MIB // 4
            reference = sheaf.put(array_of(run.seed, number, size))
            crc = zlib.crc32(array_of(run.seed, number, size))
            first = Holder.options(resources={"n3": 1}).remote()
            pid = sheaf.get(first.process.remote(), timeout=WAIT_S)
            if number % 2 == 0:
                call = first.pass_on.remote(number, [reference], last)
                if run.random.random() < 0.7:
                    sheaf.get(call, timeout=WAIT_S)
                else:  # In the middle of it.
                    time.sleep(run.random.uniform(0, 0.02))
                kill(pid)
                _, error = outcome(call)
                del reference, call  # The owner's own; what `last` borrows stays.
                if error is None:
                    passed += 1
                    assert sheaf.get(last.checksum.remote(number), timeout=WAIT_S) == crc
                else:  # It may have been passed on, or not.
                    value, lost = outcome(last.checksum.remote(number))
                    assert value == crc or isinstance(lost, KeyError), lost
                    late.add(number)
                sheaf.get(last.drop.remote(number), timeout=WAIT_S)
            else:
                call = first.take_and_drop.remote([reference])
                if run.random.random() < 0.7:
                    assert sheaf.get(call, timeout=WAIT_S) == crc
                kill(pid)
                value, error = outcome(call)
                assert value in (None, crc)
                dropped += 1
                assert (
                    zlib.crc32(sheaf.get(reference, timeout=WAIT_S)) == crc
                )  # It is still the owner's.
                del reference, call
            del first
            wait_until(nothing_left, what=Left(cluster, number))
        run.figures(
            f"{rounds} borrowers killed: {passed} had passed their reference on, "
            f"{dropped} had dropped it or were about to; every object "
            "read right, and gone with its last reference"
        )


class Latency(threading.Thread):
    """Of calls one by one, in seconds."""

    def __init__(self, actor):
        super().__init__()
        self.actor, self.over, self.took, self.failure = actor, threading.Event(), [], None

    def run(self):
        try:
            while not self.over.is_set():
                begin = time.monotonic()
                sheaf.get(self.actor.process.remote(), timeout=WAIT_S)
                self.took.append(time.monotonic() - begin)
                time.sleep(0.002)
        except BaseException as failure:
            self.failure = failure

    def end(self):
        self.over.set()
        self.join(WAIT_S)
        if self.failure:
            raise self.failure
        return sorted(self.took)[int(len(self.took) * 0.99)]


@sheaf.remote(num_cpus=0.5, max_retries=0)
def work(seed, number):
    end = time.process_time() + 0.01
    while time.process_time() < end:
        pass
    return expected(seed, number)


class CpuLimit:
    """A group whose processes get `part` of a core, all together. ok: there is such a thing
    here."""

    FOLDER = "/sys/fs/cgroup/cpu"

    def __init__(self, part):
        self.path = os.path.join(self.FOLDER, f"sheaf-fault-{os.getpid()}")
        try:
            os.mkdir(self.path)
            with open(os.path.join(self.path, "cpu.cfs_quota_us"), "w", encoding="utf-8") as file:
                file.write(str(int(part * 100_000)))
            self.ok = True
        except OSError:
            self.ok = False

    def take(self, pids):
        for pid in pids:
            with (
                contextlib.suppress(OSError),
                open(os.path.join(self.path, "cgroup.procs"), "w", encoding="utf-8") as file,
            ):
                file.write(str(pid))

    def remove(self):
        def gone():
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
            return not os.path.exists(self.path)

        if self.ok:
            wait_until(gone, what="the group is empty")


class DutyCycle(threading.Thread):
    """Where there are no such groups: stops and continues processes, so that they run `part` of the
    time."""

    def __init__(self, pids, part):
        super().__init__()
        self.pids, self.part, self.over = pids, part, threading.Event()

    def run(self):
        while not self.over.is_set():
            for word, seconds in (
                (signal.SIGSTOP, 0.1 * (1 - self.part)),
                (signal.SIGCONT, 0.1 * self.part),
            ):
                for pid in self.pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, word)
                time.sleep(seconds)

    def end(self):
        self.over.set()
        self.join()


@sheaf.remote(num_cpus=0.1, max_retries=0)
def make(seed, number, size_bytes):
    return array_of(seed, number, size_bytes)


@sheaf.remote(num_cpus=0.1, max_retries=0)
def checksum(array):
    return zlib.crc32(array)


class SlowDisk:
    """Of a node that was started with `environment`: spilled objects move at 1 MB/s while it is
    slow."""

    RATE = 1_000_000
    PIECE = 4 * MIB

    def __init__(self, cluster, run):
        self.cluster, self.run = cluster, run
        self.switch = os.path.join(cluster.scratch, "slow-disk")
        self.environment = with_shim(FAULT_DISK_SLOW=self.switch)
        self.kept = []

    def fill(self, pieces):
        """Objects on node 3, which its owner keeps."""
        first = len(self.kept)
        self.kept += [
            make.options(resources={"n3": 1}).remote(self.run.seed, number, self.PIECE)
            for number in range(first, first + pieces)
        ]

    def begin(self):
        with open(self.switch, "w", encoding="utf-8") as file:
            file.write(str(self.RATE))

    def end(self):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.switch)

    def delayed(self):
        try:
            with open(self.switch + ".delayed", encoding="utf-8") as file:
                return sum(int(line) for line in file)
        except FileNotFoundError:
            return 0

    def check(self):
        """Every object is what was made."""
        for number, made in enumerate(self.kept):
            assert sheaf.get(
                checksum.options(resources={"n3": 1}).remote(made), timeout=90
            ) == zlib.crc32(array_of(self.run.seed, number, self.PIECE))
        self.kept.clear()


def row_25(run):
    """A node has 5 % of a core, a cable of 1 Mbit/s and a disk of 1 MB/s: it is slow, and lives,
    and the others are as fast as before."""
    seconds = run.count(6, 60)
    with Cluster(seed=run.seed, cpus=(0, 2)) as cluster:
        disk = SlowDisk(cluster, run)
        for environment in (disk.environment, None):
            cluster.start(cluster.network.add(), 2, environment=environment)
        cluster.connect(2)
        disk.fill(cluster.store_mib * MIB // disk.PIECE - 3)
        sheaf.wait(disk.kept, num_returns=len(disk.kept), timeout=WAIT_S, fetch_local=False)
        near, far = (Holder.options(resources={f"n{place}": 1}).remote() for place in (4, 3))
        sheaf.get([near.process.remote(), far.process.remote()], timeout=WAIT_S)
        before = Latency(near)
        before.start()
        time.sleep(2)
        usual = before.end()
        limit = CpuLimit(0.05)
        slow = list(cluster.processes(3))
        cycle = None
        if limit.ok:
            limit.take(slow)
        else:
            cycle = DutyCycle(slow, 0.05)
            cycle.start()
        cluster.network.isolate(3, rate=125_000)
        disk.begin()
        try:
            disk.fill(6)
            meanwhile = Latency(near)
            meanwhile.start()
            begin = time.monotonic()
            done = 0
            pending = {}
            while time.monotonic() - begin < seconds:
                while len(pending) < 8:
                    pending[
                        work.options(scheduling_strategy="SPREAD").remote(
                            run.seed, done + len(pending)
                        )
                    ] = done + len(pending)
                ready, _ = sheaf.wait(list(pending), num_returns=1, timeout=WAIT_S)
                assert ready, "no call ended"
                for call in ready:
                    assert sheaf.get(call) == expected(run.seed, pending.pop(call))
                    done += 1
                assert all(cluster.is_alive(place) for place in (1, 2, 3, 4))
            for call, number in pending.items():
                assert sheaf.get(call, timeout=90) == expected(run.seed, number)
            slowed = meanwhile.end()
            assert sheaf.get(far.process.remote(), timeout=90) > 0
            # With a twentieth of a core it may take until now to begin.
            until = time.monotonic() + WAIT_S
            while disk.delayed() == 0 and time.monotonic() < until:
                time.sleep(0.1)
        finally:
            if cycle is not None:
                cycle.end()
            cluster.network.heal()
            disk.end()
            if limit.ok:
                with open(
                    os.path.join(limit.path, "cpu.cfs_quota_us"), "w", encoding="utf-8"
                ) as file:
                    file.write("-1")
        disk.check()
        assert disk.delayed() > 0, (
            "nothing was spilled while the disk was slow: this run shows nothing of it"
        )
        assert all(cluster.is_alive(place) for place in (1, 2, 3, 4))
        assert "declared dead" not in cluster.nodes[3].log()
        assert slowed < 10 * usual + 0.1, (usual, slowed)
        run.figures(
            f"{seconds} s at 5 % of a core "
            f"({'a group' if limit.ok else 'stopped and continued'}) and 1 Mbit/s, "
            f"spilling at 1 MB/s ({disk.delayed() / MIB:.0f} MiB): "
            f"no node lost, {done} calls and all objects right; a call to a node "
            f"beside it: p99 {slowed * 1e3:.1f} ms, {usual * 1e3:.1f} ms before "
            f"({slowed / usual:.2f} times)"
        )
    limit.remove()


def fails(done, *words):
    """A start that failed says why."""
    assert done.returncode != 0, done.stdout
    said = done.stderr + done.stdout
    assert all(word in said for word in words), f"wanted {words} in: {said}"
    return said.strip().splitlines()[-1]
