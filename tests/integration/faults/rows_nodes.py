# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows 6, 25, 34 and 36: borrowers that die, and nodes that are slow, poor or of another version."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib

import numpy as np
import sheaf
from node_cluster import SHEAF, WAIT_S, Cluster, array_of, expected, outcome, wait_until
from packet_switch import address_of

MIB = 1 << 20
VERSION = b"0.1.0"


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
        return f"no object is left after round {self.number}: {[self.cluster.ask(place, 'memory') for place in (2, 3, 4)]}"


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def row_6(run):
    """A borrower passes a reference on and dies; another drops it and dies at once. The owner lives; its counts are exact."""
    rounds = run.count(6, 100)
    passed = dropped = 0
    with Cluster(seed=run.seed, cpus=(0, 2, 2, 2)) as cluster:
        cluster.connect(2)
        last = Holder.options(resources={"n4": 1}).remote()
        sheaf.get(last.process.remote(), timeout=WAIT_S)

        def nothing_left():
            # The owner may keep one empty place in the store of its node, to put the next object into.
            stored = [cluster.ask(place, "status")["store"]["objects"] for place in (2, 3, 4)]
            owned = [row for row in cluster.ask(2, "list", "objects")["objects"] if row["size_bytes"] > 0]
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
                sheaf.get(last.drop.remote(number), timeout=WAIT_S)
            else:
                call = first.take_and_drop.remote([reference])
                if run.random.random() < 0.7:
                    assert sheaf.get(call, timeout=WAIT_S) == crc
                kill(pid)
                value, error = outcome(call)
                assert value in (None, crc)
                dropped += 1
                assert zlib.crc32(sheaf.get(reference, timeout=WAIT_S)) == crc  # It is still the owner's.
                del reference, call
            del first
            wait_until(nothing_left, what=Left(cluster, number))
        run.figures(f"{rounds} borrowers killed: {passed} had passed their reference on, {dropped} had dropped it or were about to; every object "
                    "read right, and gone with its last reference")


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
    """A group whose processes get `part` of a core, all together. ok: there is such a thing here."""

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
            with contextlib.suppress(OSError), open(os.path.join(self.path, "cgroup.procs"), "w", encoding="utf-8") as file:
                file.write(str(pid))

    def remove(self):
        def gone():
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
            return not os.path.exists(self.path)

        if self.ok:
            wait_until(gone, what="the group is empty")


class DutyCycle(threading.Thread):
    """Where there are no such groups: stops and continues processes, so that they run `part` of the time."""

    def __init__(self, pids, part):
        super().__init__()
        self.pids, self.part, self.over = pids, part, threading.Event()

    def run(self):
        while not self.over.is_set():
            for word, seconds in ((signal.SIGSTOP, 0.1 * (1 - self.part)), (signal.SIGCONT, 0.1 * self.part)):
                for pid in self.pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, word)
                time.sleep(seconds)

    def end(self):
        self.over.set()
        self.join()


def row_25(run):
    """A node has 5 % of a core and a cable of 1 Mbit/s: it is slow, and lives, and the others are as fast as before."""
    seconds = run.count(6, 60)
    with Cluster(seed=run.seed, cpus=(0, 2, 2, 2)) as cluster:
        cluster.connect(2)
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
        try:
            meanwhile = Latency(near)
            meanwhile.start()
            begin = time.monotonic()
            done = there = 0
            pending = {}
            while time.monotonic() - begin < seconds:
                while len(pending) < 8:
                    pending[work.options(scheduling_strategy="SPREAD").remote(run.seed, done + len(pending))] = done + len(pending)
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
        finally:
            if cycle is not None:
                cycle.end()
            cluster.network.heal()
            if limit.ok:
                with open(os.path.join(limit.path, "cpu.cfs_quota_us"), "w", encoding="utf-8") as file:
                    file.write("-1")
        assert all(cluster.is_alive(place) for place in (1, 2, 3, 4))
        assert "declared dead" not in cluster.nodes[3].log()
        assert slowed < 10 * usual + 0.1, (usual, slowed)
        run.figures(f"{seconds} s at 5 % of a core ({'a group' if limit.ok else 'stopped and continued'}) and 1 Mbit/s: no node lost, {done} calls "
                    f"right; a call to a node beside it: p99 {slowed * 1e3:.1f} ms, {usual * 1e3:.1f} ms before ({slowed / usual:.2f} times)")
    limit.remove()


def fails(done, *words):
    """A start that failed says why."""
    assert done.returncode != 0, done.stdout
    said = done.stderr + done.stdout
    assert all(word in said for word in words), f"wanted {words} in: {said}"
    return said.strip().splitlines()[-1]


def row_34(run):
    """64 descriptors, no free port, no more processes: an error that says so, no hang, and the others go on."""
    words = []
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)
        place = cluster.network.add()

        begin = time.monotonic()
        done = cluster.try_start(place, 2, prefix=["prlimit", "--nofile=64:64"])
        if done.returncode == 0:  # It found that enough.
            said = json.loads(done.stdout)
            calls = [work.options(resources={f"n{place}": 1}).remote(run.seed, number) for number in range(20)]
            ends = [outcome(call) for call in calls]
            assert all(error is not None or value == expected(run.seed, number) for number, (value, error) in enumerate(ends))
            subprocess.run([SHEAF, "stop", "--force", f"--address={said['session']}"], capture_output=True, timeout=60, check=True)
            words.append(f"64 descriptors: {sum(error is None for _, error in ends)} values and {sum(error is not None for _, error in ends)} "
                         "typed errors of 20 calls")
        else:
            words.append(f"64 descriptors: refused after {time.monotonic() - begin:.1f} s ('{fails(done, 'open files')[:100]}')")

        begin = time.monotonic()
        second = subprocess.run([*cluster.network.within(1), SHEAF, "start", "--head", f"--dir={cluster.directory}", "--host=10.77.0.1",
                                 "--port=6379", "--num-cpus=1"], capture_output=True, text=True, timeout=60)
        fails(second, "6379")
        # All ports that the kernel gives away in this namespace are two, and both are taken.
        taken = subprocess.Popen([*cluster.network.within(place), sys.executable, "-c", f"""
import socket, sys
open('/proc/sys/net/ipv4/ip_local_port_range', 'w').write('41000 41001')
held = [socket.create_server((host, port)) for port in (41000, 41001) for host in ('{address_of(place)}', '127.0.0.1')]
print('taken', flush=True)
sys.stdin.read()
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert taken.stdout.readline() == "taken\n"
        done = cluster.try_start(place, 2)
        said = fails(done, "port")
        words.append(f"no port: refused in {time.monotonic() - begin:.1f} s ('{said[:100]}')")
        taken.communicate("")
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not cluster.processes(place), 10)
        assert not cluster.processes(place), cluster.processes(place)

        words.append(no_processes(cluster, run))
        assert sheaf.get([work.remote(run.seed, number) for number in range(10)], timeout=WAIT_S) == [expected(run.seed, n) for n in range(10)]
        wait_until(lambda: len(cluster.alive()) == 3, what="the node that was stopped is known to be gone")
    run.figures("; ".join(words))


def no_processes(cluster, run):
    """A node that may start no process more: its calls wait for its workers or fail, those of others go on."""
    group = f"/sys/fs/cgroup/pids/sheaf-fault-{os.getpid()}"
    try:
        os.mkdir(group)
    except OSError as error:
        return f"no group that limits processes here ({error.strerror})"
    node = cluster.nodes[3]
    for pid in cluster.processes(3):
        with open(os.path.join(group, "cgroup.procs"), "w", encoding="utf-8") as file:
            file.write(str(pid))
    with open(os.path.join(group, "pids.current"), encoding="utf-8") as file:
        current = int(file.read())
    with open(os.path.join(group, "pids.max"), "w", encoding="utf-8") as file:
        file.write(str(current))
    begin = time.monotonic()
    calls = [work.options(resources={"n3": 1}).remote(run.seed, number) for number in range(4)]
    ends = [outcome(call, 60) for call in calls]
    took = time.monotonic() - begin
    assert all(error is not None or value == expected(run.seed, number) for number, (value, error) in enumerate(ends))
    kinds = sorted({type(error).__name__ for _, error in ends if error is not None})
    assert node.is_running() and cluster.is_alive(3)
    with open(os.path.join(group, "pids.max"), "w", encoding="utf-8") as file:
        file.write("max")
    assert sheaf.get(work.options(resources={"n3": 1}).remote(run.seed, 77), timeout=WAIT_S) == expected(run.seed, 77)
    for pid in cluster.processes(3):
        with contextlib.suppress(OSError), open("/sys/fs/cgroup/pids/cgroup.procs", "w", encoding="utf-8") as file:
            file.write(str(pid))
    with contextlib.suppress(OSError):
        os.rmdir(group)
    return f"no process more: {kinds or 'values'} after {took:.1f} s, and values when there was room again"


def of_another_version(source, target):
    """Copies a program or module so that it says of itself that it is version 9.9.9. How often it said its own."""
    with open(source, "rb") as file:
        data = file.read()
    with open(target, "wb") as file:
        file.write(data.replace(VERSION + b"\0", b"9.9.9\0"))
    os.chmod(target, 0o755)
    return data.count(VERSION + b"\0")


def row_36(run):
    """A node and a driver of another version are told so, at once, in words that name both; nobody else notices."""
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)
        place = cluster.network.add()
        other = os.path.join(cluster.scratch, "other")
        os.mkdir(other)
        assert of_another_version(shutil.which(SHEAF), os.path.join(other, "sheaf")) > 0
        calls = [work.remote(run.seed, number) for number in range(50)]
        begin = time.monotonic()
        done = subprocess.run([*cluster.network.within(place), os.path.join(other, "sheaf"), "start", f"--dir={cluster.directory}",
                               f"--host={address_of(place)}", "--port=0", "--num-cpus=1", f"--address={address_of(1)}:6379"],
                              capture_output=True, text=True, timeout=60)
        said = fails(done, "0.1.0", "9.9.9")
        took = time.monotonic() - begin
        assert took < 20, took
        package = os.path.join(other, "python", "sheaf")
        shutil.copytree(os.path.dirname(sheaf.__file__), package)
        (module,) = [name for name in os.listdir(package) if name.startswith("_core") and name.endswith(".so")]
        assert of_another_version(os.path.join(os.path.dirname(sheaf.__file__), module), os.path.join(package, module)) > 0
        # On one machine the layout of the shared memory decides, not the version: a driver with the same one may work.
        program = f"import sheaf; sheaf.init(address={cluster.nodes[2].session!r}); print(sheaf.get(sheaf.put('served'), timeout=20))"
        begin = time.monotonic()
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                              env=os.environ | {"PYTHONPATH": os.path.dirname(package)})
        driver = "served" if done.stdout.strip() == "served" else f"refused ('{fails(done, '0.1.0', '9.9.9')[:100]}')"
        assert sheaf.get(calls, timeout=WAIT_S) == [expected(run.seed, number) for number in range(50)]
        assert len(cluster.alive()) == 3
        run.figures(f"a node of version 9.9.9 was refused after {took:.1f} s ('{said[:160]}'), a driver was {driver} within {time.monotonic() - begin:.1f} s; "
                    "50 calls meanwhile right")
