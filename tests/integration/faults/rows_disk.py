# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows 12, 13, 15 and 17: the head's disk loses, damages or refuses what was written, and a head
that is stopped for long.

The head is killed or stopped, or its GCS ends by itself; nodes, driver and running work live on,
and what was acknowledged is there when a head, or its GCS, goes on with the disk.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import threading
import time

import sheaf
from node_cluster import SHEAF, WAIT_S, Cluster, expected, wait_until
from packet_switch import Missing
from sheaf import _core

SHIM = pathlib.Path(
    os.environ.get("FAULT_DISK_SHIM")
    or pathlib.Path(shutil.which(SHEAF) or SHEAF).resolve().parents[1]
    / "tests/integration/faults/libdisk_shim.so"
)


@sheaf.remote(num_cpus=0.1, max_restarts=-1)
class Clerk:
    def __init__(self):
        self.total = 0

    def add(self):
        self.total += 1
        return self.total


def with_shim(**environment):
    if not SHIM.exists():
        raise Missing(f"{SHIM} is not built")
    return {"LD_PRELOAD": str(SHIM), **environment}


class Writers:
    """Write keys from several threads, and know what was acknowledged."""

    def __init__(self, seed, round_number, threads=3):
        self.acknowledged, self.over, self.failures = {}, threading.Event(), []
        self.threads = [
            threading.Thread(target=self._write, args=(seed, round_number, thread))
            for thread in range(threads)
        ]
        for thread in self.threads:
            thread.start()

    def _write(self, seed, round_number, thread):
        number = 0
        while not self.over.is_set():
            key = f"{round_number}-{thread}-{number}"
            value = (
                str(expected(seed, hash((round_number, thread, number)) & 0xFFFFFFFF)).encode() * 20
            )
            try:
                _core.key_put("faults", key, value, True)
            except Exception as error:  # Not acknowledged: it may be there or not.
                if not isinstance(
                    error,
                    (
                        sheaf.exceptions.RayError,
                        ConnectionError,
                        TimeoutError,
                        OSError,
                        RuntimeError,
                    ),
                ):
                    self.failures.append(error)
                self.failed = error
                return
            self.acknowledged[key] = value
            number += 1

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a write neither ended nor failed"
        assert not self.failures, self.failures


def all_there(values):
    for key, value in values.items():
        found = _core.key_get("faults", key)
        assert found is not None and bytes(found) == value, (
            f"{key}: {found!r}, acknowledged was {value!r}"
        )


def await_end(node):
    wait_until(lambda: not node.is_running(), what=f"the head {node.pid} ends")


def resume(cluster, session, environment=None):
    return cluster.start(1, 0, [f"--resume={session}"], environment)


def kill_head(cluster):
    """With its GCS, a process of its own that would end in good order when its raylet is gone, and
    take its log along."""
    head = cluster.nodes[1]
    for process in (head.pid, *(pid for pid in list(cluster.processes(1)) if pid != head.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    await_end(head)
    return head.session


def call_of(clerk, total):
    assert sheaf.get(clerk.add.remote(), timeout=WAIT_S) == total


def row_12(run):
    """The head dies, and its disk forgets all that was not synced."""
    rounds = run.count(4, 100)
    environment = with_shim(FAULT_DISK_KEEP="1")
    with Cluster(seed=run.seed, head_environment=environment) as cluster:
        cluster.connect(2)
        clerk = Clerk.options(resources={"n3": 1}).remote()
        kept, names, lost_bytes, back = {}, 0, 0, []
        for number in range(rounds):
            call_of(clerk, 2 * number + 1)
            writers = Writers(run.seed, number)
            Clerk.options(
                name=f"clerk-{number}", lifetime="detached", num_cpus=0
            ).remote()  # Returns when it is durable.
            time.sleep(run.random.uniform(0.02, 0.3))
            session = kill_head(cluster)
            call_of(clerk, 2 * number + 2)  # Between the other nodes.
            for file in [
                name
                for name in os.listdir(session)
                if name.startswith("gcs.db") and name.endswith((".db", "-wal"))
            ]:
                path = os.path.join(session, file)
                size = os.path.getsize(path)
                if os.path.exists(path + ".synced"):
                    lost_bytes += max(0, size - os.path.getsize(path + ".synced"))
                    shutil.copyfile(path + ".synced", path)
                else:
                    lost_bytes += size
                    os.remove(path)
            begin = time.monotonic()
            resume(cluster, session, environment)
            writers.end()
            all_there(writers.acknowledged)
            back.append(time.monotonic() - begin)
            kept |= writers.acknowledged
            actor = sheaf.get_actor(f"clerk-{number}")
            assert sheaf.get(actor.add.remote(), timeout=WAIT_S) == 1
            names += 1
            sheaf.kill(actor)
        all_there(kept)
        call_of(clerk, 2 * rounds + 1)
        assert len(kept) > rounds
        run.figures(
            f"{rounds} times the head died and {lost_bytes} bytes that were not "
            f"synced with it: {len(kept)} keys and {names} names that were "
            "acknowledged are there, an actor on another node answered throughout; "
            f"read back {max(back):.2f} s after the new start at most"
        )


def end_of_log(log):
    """Where the frames of the log end that SQLite reads: behind them lie those of before the last
    checkpoint, with other salts."""
    page = int.from_bytes(log[8:12], "big")
    end = 32
    while log[end + 8 : end + 16] == log[16:24]:
        end += 24 + page
    return end


def row_13(run):
    """The log of the head has a torn end: it is cut off. A bit of its middle is another: refused,
    with file and place."""
    rounds = run.count(3, 50)
    refused, said = 0, ""
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)
        kept = {}
        for number in range(rounds):
            writers = Writers(run.seed, number)
            wait_until(lambda: len(writers.acknowledged) > 60, what="keys are written")
            session = kill_head(cluster)
            log = os.path.join(session, "gcs.db-wal")
            with open(log, "rb") as file:
                whole = file.read()
            # In the first half of what counts: whatever is behind it was acknowledged.
            end = end_of_log(whole)
            place = run.random.randrange(32 + 24, end // 2)
            with open(log, "r+b") as file:
                file.seek(place)
                file.write(bytes([whole[place] ^ (1 << run.random.randrange(8))]))
            done = cluster.try_start(1, 0, [f"--resume={session}"])
            words = done.stderr + done.stdout
            assert (
                done.returncode != 0
                and "gcs.db-wal" in words
                and any(part.isdigit() for part in words.replace(",", " ").split())
            ), words
            said = words.strip().splitlines()[-1]
            refused += 1
            torn = (
                whole[:end]
                + whole[32 : 32 + 24]
                + run.random.randbytes(run.random.randrange(1, 4096))
            )
            with open(log, "wb") as file:
                file.write(torn)
            resume(cluster, session)
            writers.end()
            kept |= writers.acknowledged
            all_there(kept)
        run.figures(
            f"{refused} flipped bits refused ('{said[-140:]}'), {rounds} torn ends "
            f"cut off; {len(kept)} acknowledged keys are there"
        )


def row_15(run):
    """One sync of the head's disk fails: nothing is acknowledged on it, the GCS ends, and its node
    starts it anew with what was."""
    rounds = run.count(4, 100)
    with Cluster(seed=run.seed, head_environment=None) as cluster:
        trap = os.path.join(cluster.scratch, "fail")
        environment = with_shim(FAULT_DISK_FAIL=trap)
        cluster.connect(2)
        session = kill_head(cluster)
        resume(cluster, session, environment)
        clerk = Clerk.options(resources={"n3": 1}).remote()
        kept, back = {}, []
        head = cluster.nodes[1]
        said = "exit status 74"
        for number in range(rounds):
            call_of(clerk, 2 * number + 1)
            writers = Writers(run.seed, number)
            wait_until(lambda: len(writers.acknowledged) > 5, what="keys are written")
            time.sleep(run.random.uniform(0, 0.1))
            acknowledged = len(writers.acknowledged)
            with open(trap, "wb"):
                begin = time.monotonic()
            wait_until(lambda: head.log().count(said) > number, what="the GCS ends")
            assert not os.path.exists(trap)
            call_of(clerk, 2 * number + 2)
            wait_until(
                lambda: len(writers.acknowledged) > acknowledged + 5, what="keys are written again"
            )
            back.append(time.monotonic() - begin)
            writers.end()
            kept |= writers.acknowledged
            all_there(writers.acknowledged)
        all_there(kept)
        assert head.is_running() and head is cluster.nodes[1]
        run.figures(
            f"{rounds} failed syncs: the GCS ended, and keys were written again "
            f"{max(back):.2f} s later at most; {len(kept)} acknowledged keys are "
            "there, the head's node lived, an actor on another node answered throughout"
        )


def row_17(run):
    """The head is stopped for longer than a node may be silent. Nobody takes its place while it may
    wake, and nobody dies of it."""
    seconds = run.count(7, 60)
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)
        clerk = Clerk.options(resources={"n3": 1}).remote()
        call_of(clerk, 1)
        standby = cluster.network.add()
        head = cluster.nodes[1]
        total = 1
        kept = {}
        for wakes in (True, False):
            writers = Writers(run.seed, int(wakes))
            wait_until(lambda: len(writers.acknowledged) > 5, what="keys are written")
            os.kill(head.pid, signal.SIGSTOP)
            begin = time.monotonic()
            # A standby that believes it dead, on this machine and, with the same disk and a free
            # port, on another.
            for place in (1, standby):
                done = cluster.try_start(place, 0, [f"--resume={head.session}"], head=True)
                assert done.returncode != 0 and "a node runs in" in done.stderr, done.stderr
                said = (done.stderr + done.stdout).strip().splitlines()[-1]
            while time.monotonic() - begin < seconds:
                total += 1
                call_of(clerk, total)
                time.sleep(0.05)
            if wakes:
                os.kill(head.pid, signal.SIGCONT)
            else:
                os.kill(head.pid, signal.SIGKILL)
                await_end(head)
                resume(cluster, head.session)
            wait_until(lambda: len(cluster.alive()) == 3, what="all nodes are alive")
            writers.end()
            kept |= writers.acknowledged
            all_there(kept)
            assert cluster.is_alive(2) and cluster.is_alive(3)
            total += 1
            call_of(clerk, total)
        assert "declared dead" not in cluster.nodes[2].log() + cluster.nodes[3].log()
        run.figures(
            f"stopped twice for {seconds} s: a second head, beside it and on "
            f"another machine with its disk, was refused ('{said[-120:]}'); once it "
            "woke, once it was killed and another went on; "
            f"{total} calls of an actor elsewhere and {len(kept)} acknowledged keys "
            "right, no node lost"
        )
