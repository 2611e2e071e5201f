# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 8: the raylet of a node is killed, and nothing else of it. Row 9: it is stopped, for shorter
and for longer than a node may be silent."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zlib

import numpy as np
import sheaf
from node_cluster import (
    WAIT_S,
    Cluster,
    Marks,
    array_of,
    expected,
    is_running,
    outcome,
    stop,
    wait_until,
)
from rows_nodes import Holder
from rows_partitions import Caller, Recorder, Waiting, make, marked, one_at_a_time, soft
from sheaf import _core

MIB = 1 << 20
LOST = (sheaf.exceptions.NodeDiedError, sheaf.exceptions.WorkerCrashedError)


@sheaf.remote(num_cpus=0.1, max_retries=0)
def occupied(path, how, never):
    """A worker in one of the states in which its raylet may leave it."""
    Marks.add(path, 0)
    if how == "in Python":
        while True:
            pass
    if how == "in the kernel":
        time.sleep(3600)
    sheaf.get(never[0])  # In a wait of ours.


@sheaf.remote(num_cpus=0.1, max_retries=0)
def until(path, seed, marks=None, number=0):
    """Ends when the file is there."""
    if marks is not None:
        Marks.add(marks, number)
    while not os.path.exists(path):
        time.sleep(0.02)
    return expected(seed, number)


@sheaf.remote(num_cpus=0.1, max_retries=0)
def keep_there(seed, number):
    return array_of(seed, number, MIB)


@sheaf.remote(num_cpus=0.1)
class Owner:
    """Owns objects on its node, as long as it lives."""

    def make(self, seed, number):
        return [sheaf.put(array_of(seed, number, MIB))]


@sheaf.remote(num_cpus=0.1, max_retries=0)
def checksum_of(references):
    return zlib.crc32(sheaf.get(references[0], timeout=WAIT_S))


@sheaf.remote(num_cpus=0.1, max_retries=0)
def answer(seed, number):
    return expected(seed, number)


def driver(session: str, seed: int, place: int, key: str) -> None:
    """A program on a node: calls there and on node 2, one after the other, until one fails. When
    its input says so it also writes `key`, from another thread; without a key it ends then."""
    sheaf.init(address=session, log_to_driver=False, namespace="faults")
    told = threading.Event()

    def listen():
        sys.stdin.readline()
        told.set()
        if key:
            with contextlib.suppress(Exception):  # Refused, or its node ends.
                _core.key_put("faults", key, b"written", True)

    threading.Thread(target=listen, daemon=True).start()
    values, error = 0, None
    while error is None and (key or not told.is_set()):
        try:
            for at in (place, 2):
                assert sheaf.get(
                    answer.options(resources={f"n{at}": 1}).remote(seed, values), timeout=60
                ) == expected(seed, values)
                values += 1
        except sheaf.exceptions.GetTimeoutError:
            raise
        except sheaf.exceptions.RayError as failed:
            error = failed
        if values == 2 and error is None:
            print("running", flush=True)
        time.sleep(0.01)
    print(json.dumps([values, type(error).__name__]), flush=True)


class Beside:
    """The driver on a node that is struck, as a process of its own."""

    def __init__(self, cluster, run, place, key="-"):
        program = (
            "import rows_raylets; "
            f"rows_raylets.driver({cluster.nodes[place].session!r}, {run.seed}, "
            f"{place}, {key!r})"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ.copy(),
        )

    def await_calls(self):
        assert self.process.stdout.readline() == "running\n", self.process.poll()

    def tell(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        """(values, the name of the error that ended it)."""
        said, _ = self.process.communicate(timeout=2 * WAIT_S)
        assert self.process.returncode == 0, (self.process.returncode, said)
        return json.loads(said)


def ends_of(pids) -> dict:
    """pid: seconds from now until it had ended, of all these processes."""
    begin, ends = time.monotonic(), {}

    def all_ended():
        for pid in pids:
            if pid not in ends and not is_running(pid):
                ends[pid] = time.monotonic() - begin
        return len(ends) == len(pids)

    while not all_ended():
        if time.monotonic() - begin > WAIT_S:
            raise AssertionError(f"{WAIT_S} s after their raylet: {sorted(set(pids) - set(ends))}")
        time.sleep(0.002)
    return ends


def kill_the_raylet(cluster, run, number, exits):
    """One round; (calls that ran twice, calls of the actor, the slowest error, and the slowest
    answers about borrowed objects with and without a copy)."""
    seed, lost = run.seed + number, cluster.nodes[3]
    beside = Beside(cluster, run, 3)
    marks, once, accepted, busy = (
        Marks(cluster.directory, f"{name}-{number}")
        for name in ("retried", "once", "accepted", "busy")
    )
    # Objects: the driver's own with a copy on node 4, without one, and one that can be made again;
    # and another's, with a copy on node 4.
    far = Holder.options(resources={"n4": 1}).remote()
    copied, alone = (keep_there.options(resources={"n3": 1}).remote(seed, i) for i in (1, 2))
    again = make.options(scheduling_strategy=soft(lost)).remote(seed, 3)
    owner = Owner.options(resources={"n3": 1}).remote()
    theirs, unread = (sheaf.get(owner.make.remote(seed, i), timeout=WAIT_S)[0] for i in (4, 5))
    crc = {i: zlib.crc32(array_of(seed, i, MIB)) for i in (1, 4)}
    sheaf.get([far.keep.remote(1, [copied]), far.keep.remote(4, [theirs])], timeout=WAIT_S)
    assert sheaf.get([far.checksum.remote(1), far.checksum.remote(4)], timeout=WAIT_S) == [
        crc[1],
        crc[4],
    ]
    sheaf.wait([alone, again], num_returns=2, timeout=WAIT_S, fetch_local=False)
    # Actors and calls.
    bound = Holder.options(resources={"n3": 1}).remote()
    assert sheaf.get(bound.process.remote(), timeout=WAIT_S) > 0
    actor = Recorder.options(
        name=f"kept-{number}",
        num_cpus=0.1,
        lifetime="detached",
        max_restarts=-1,
        max_task_retries=0,
        scheduling_strategy=soft(lost),
    ).remote(accepted.path)
    assert sheaf.get(actor.accept.remote(-1), timeout=WAIT_S) == 1
    caller = Caller(actor)
    caller.start()
    flag = os.path.join(cluster.scratch, f"go-on-{number}")
    never = until.options(resources={"n4": 1}).remote(flag, seed)
    stuck = [
        occupied.options(resources={"n3": 1}).remote(busy.path, how, [never])
        for how in ("in Python", "in the kernel", "in a wait")
    ]
    stuck += [
        marked.options(num_cpus=0.1, max_retries=0, resources={"n3": 1}).remote(
            once.path, seed, i, 60
        )
        for i in range(2)
    ]
    wait_until(lambda: len(busy.all()) == 3 and len(once.all()) == 2, what="calls occupy the node")
    retried = {
        i: marked.options(num_cpus=0.1, max_retries=3, scheduling_strategy=soft(lost)).remote(
            marks.path, seed, i, 0.2
        )
        for i in range(20)
    }
    beside.await_calls()
    wait_until(lambda: len(marks.all()) > 3, what="calls with retries run")
    time.sleep(run.random.uniform(0, 0.3))

    os.kill(lost.pid, signal.SIGKILL)
    begin = time.monotonic()
    exits += ends_of([pid for pid in cluster.processes(3) if pid != lost.pid]).values()
    cluster.nodes.pop(3)
    bounded = [Waiting("a call without retries", call, WAIT_S) for call in stuck]
    bounded += [
        Waiting("a call of an actor there", bound.process.remote(), WAIT_S),
        Waiting("an object of which no copy is left", alone, WAIT_S),
    ]
    ends = [wait.ended() for wait in bounded]
    for value, error, _ in ends[:-2]:
        assert isinstance(error, LOST), (value, error)
    assert isinstance(
        ends[-2][1], (sheaf.exceptions.RayActorError, sheaf.exceptions.NodeDiedError)
    ), ends[-2]
    assert isinstance(ends[-1][1], sheaf.exceptions.ObjectLostError), ends[-1]
    known = time.monotonic() - begin
    wait_until(lambda: lost.node_id not in cluster.alive(), what="the node is known to be dead")
    # Copies.
    assert sheaf.get([far.checksum.remote(1), far.checksum.remote(4)], timeout=WAIT_S) == [
        crc[1],
        crc[4],
    ]
    assert zlib.crc32(sheaf.get(copied, timeout=WAIT_S)) == crc[1]
    assert np.array_equal(sheaf.get(again, timeout=WAIT_S), array_of(seed, 3, MIB))
    # What its dead owner's node shared with node 4, and with nobody, asked for on a third one.
    borrowed = [
        Waiting("a borrowed object with a copy", theirs, WAIT_S),
        Waiting("a borrowed object without one", unread, WAIT_S),
    ]
    (value, error, read), (_, lost_for_good, told) = [wait.ended() for wait in borrowed]
    assert error is None and np.array_equal(value, array_of(seed, 4, MIB)), error
    assert isinstance(lost_for_good, sheaf.exceptions.OwnerDiedError), lost_for_good
    # Work goes on, once.
    for i, call in retried.items():
        assert sheaf.get(call, timeout=WAIT_S) == expected(seed, i)
    wait_until(
        lambda: len({process for _, process, _ in accepted.all()}) == 2,
        what="the actor accepts calls elsewhere",
    )
    values, error = beside.end()
    assert values > 0 and error == "LocalRayletDiedError", (values, error)
    # Another raylet in its place.
    new = cluster.start(3, 2)
    assert new.number > lost.number
    wait_until(lambda: cluster.is_alive(3), what="the new node is seen")
    assert sheaf.get(
        [marked.options(resources={"n3": 1}).remote(marks.path, seed, 1000 + i) for i in range(4)],
        timeout=WAIT_S,
    ) == [expected(seed, 1000 + i) for i in range(4)]
    assert len(cluster.alive()) == 4
    # It never heard of the owner of what is passed to it.
    assert (
        sheaf.get(checksum_of.options(resources={"n3": 1}).remote([theirs]), timeout=WAIT_S)
        == crc[4]
    )
    caller.end()
    assert one_at_a_time(accepted) == 2
    assert max(once.counts().values()) == 1 and max(marks.counts().values()) <= 2, marks.counts()
    open(flag, "w", encoding="utf-8").close()
    assert sheaf.get(never, timeout=WAIT_S) == expected(seed, 0)
    sheaf.kill(sheaf.get_actor(f"kept-{number}"))
    return (
        sum(count == 2 for count in marks.counts().values()),
        len(caller.values),
        known,
        read,
        told,
    )


def row_8(run):
    """Its workers exit, copies elsewhere stay, all else is a value or a typed error, and a new
    raylet takes its place under a new number."""
    exits, twice, calls, slowest = [], 0, 0, [0.0, 0.0, 0.0]
    rounds = run.count(1, 20)
    with Cluster(seed=run.seed, cpus=(0, 2, 2, 2)) as cluster:
        cluster.connect(2)
        for number in range(rounds):
            more = kill_the_raylet(cluster, run, number, exits)
            twice, calls, slowest = (
                twice + more[0],
                calls + more[1],
                [max(pair) for pair in zip(slowest, more[2:])],
            )
        exits.sort()
        run.figures(
            f"{rounds} raylets killed; their {len(exits)} workers had exited after "
            f"p50 {exits[len(exits) // 2] * 1e3:.0f} ms, at most "
            f"{exits[-1] * 1e3:.0f} ms "
            "(1 s is promised); what was lost with them ended in typed errors "
            f"after {slowest[0]:.1f} s at most; every object with a copy elsewhere "
            "was "
            "read right, also what was borrowed from a process that died: on the "
            f"node of the copy, on a third one ({slowest[1]:.1f} s after the death "
            "was known "
            "at most) and on one that joined later; without a copy OwnerDiedError "
            f"({slowest[2]:.1f} s); {twice} of {20 * rounds} calls ran twice, "
            f"{calls} calls of actors that moved; each node was replaced under a "
            "new number"
        )


def stop_shortly(cluster, run, seconds):
    """Nobody dies, nothing fails, nothing is done twice. Calls of the actor."""
    node, beside = cluster.nodes[3], Beside(cluster, run, 3, "")
    once, accepted = (
        Marks(cluster.directory, f"once-{seconds}"),
        Marks(cluster.directory, f"accepted-{seconds}"),
    )
    actor = Recorder.options(num_cpus=0.1, max_restarts=3, scheduling_strategy=soft(node)).remote(
        accepted.path
    )
    assert sheaf.get(actor.accept.remote(-1), timeout=WAIT_S) == 1
    there = keep_there.options(resources={"n3": 1}).remote(run.seed, 7)
    sheaf.wait([there], timeout=WAIT_S, fetch_local=False)
    caller = Caller(actor)
    beside.await_calls()
    caller.start()
    calls = {
        i: marked.options(num_cpus=0.1, max_retries=0, resources={"n3": 1}).remote(
            once.path, run.seed, i, 0.1
        )
        for i in range(30)
    }
    wait_until(lambda: len(once.all()) > 2, what="calls run on the node")
    stop(node.pid)
    try:
        read = Waiting("an object there", there, WAIT_S)
        time.sleep(seconds)  # The fault itself.
    finally:
        os.kill(node.pid, signal.SIGCONT)
    for i, call in calls.items():
        assert sheaf.get(call, timeout=WAIT_S) == expected(run.seed, i)
    value, error, _ = read.ended()
    assert error is None and np.array_equal(value, array_of(run.seed, 7, MIB)), error
    assert sheaf.get(
        marked.options(resources={"n3": 1}).remote(once.path, run.seed, 99), timeout=WAIT_S
    ) == expected(run.seed, 99)
    caller.end()
    assert not caller.errors, caller.errors[0]
    assert [value for _, value in caller.values] == list(range(2, len(caller.values) + 2))
    beside.tell()
    values, error = beside.end()
    assert values > 0 and error == "NoneType", (values, error)
    assert set(once.counts().values()) == {1} and len(once.counts()) == 31
    assert one_at_a_time(accepted) == 1
    assert all(cluster.is_alive(place) for place in (1, 2, 3))
    return len(caller.values)


def stop_for_long(cluster, run, number, seconds):
    """The node is fenced. What it has to say when it wakes counts for nothing, and it ends."""
    seed, lost, key = run.seed + number, cluster.nodes[3], f"from-a-stopped-node-{number}"
    beside = Beside(cluster, run, 3, key)
    marks, once, accepted = (
        Marks(cluster.directory, f"{name}-{number}") for name in ("retried", "once", "accepted")
    )
    actor = Recorder.options(
        name=f"stopped-{number}",
        num_cpus=0.1,
        lifetime="detached",
        max_restarts=-1,
        max_task_retries=0,
        scheduling_strategy=soft(lost),
    ).remote(accepted.path)
    assert sheaf.get(actor.accept.remote(-1), timeout=WAIT_S) == 1
    caller = Caller(actor)
    beside.await_calls()
    caller.start()
    # Calls that end while the raylet is stopped: it has their results in its rings when it wakes.
    flag = os.path.join(cluster.scratch, f"end-{number}")
    stuck = [until.options(resources={"n3": 1}).remote(flag, seed, once.path, i) for i in range(5)]
    wait_until(lambda: len(once.all()) == 5, what="the calls that may run only once run")
    retried = {
        i: marked.options(num_cpus=0.1, max_retries=3, scheduling_strategy=soft(lost)).remote(
            marks.path, seed, i, 0.3
        )
        for i in range(20)
    }
    wait_until(lambda: len(marks.all()) > 2, what="calls with retries run")
    stop(lost.pid)
    begin = time.monotonic()
    try:
        open(flag, "w", encoding="utf-8").close()
        beside.tell()
        known = wait_until(lambda: not cluster.is_alive(3), what="the node is known to be dead")
        assert 3 < known < 15, known  # Five seconds are promised; the machine may be busy.
        for call in stuck:
            value, error = outcome(call)
            assert isinstance(error, LOST), (value, error)
        for i, call in retried.items():
            assert sheaf.get(call, timeout=WAIT_S) == expected(seed, i)
        wait_until(
            lambda: len({process for _, process, _ in accepted.all()}) == 2,
            what="the actor accepts calls elsewhere",
        )
        time.sleep(max(0.0, seconds - (time.monotonic() - begin)))  # The fault itself.
    finally:
        os.kill(lost.pid, signal.SIGCONT)
    left = cluster.expect_end(3)
    assert "the GCS declared this node dead" in lost.log(), lost.log()[-2000:]
    for call in stuck:
        _, error = outcome(call)
        assert isinstance(error, LOST), error
    assert _core.key_get("faults", key) is None, "a node that was declared dead wrote a key"
    values, error = beside.end()
    assert values > 0 and error in ("LocalRayletDiedError", "NodeDiedError"), (values, error)
    again = cluster.start(3, 2)
    assert again.number > lost.number
    wait_until(lambda: cluster.is_alive(3), what="the new node is seen")
    assert sheaf.get(
        marked.options(resources={"n3": 1}).remote(marks.path, seed, 1000), timeout=WAIT_S
    ) == expected(seed, 1000)
    assert len(cluster.alive()) == 3
    caller.end()
    assert max(once.counts().values()) == 1 and max(marks.counts().values()) <= 2, marks.counts()
    assert one_at_a_time(accepted) == 2
    sheaf.kill(sheaf.get_actor(f"stopped-{number}"))
    return (
        f"{seconds} s: dead after {known:.1f} s, "
        f"{sum(count == 2 for count in marks.counts().values())} of 20 calls ran "
        "twice, 5 without retries once; "
        f"the actor moved once after {len(caller.values)} calls; awake, what the "
        "node's driver had written and its workers answered "
        f"counted for nothing, and the node ended {left:.1f} s later: 'the GCS "
        "declared this node dead'"
    )


def row_9(run):
    rounds = run.count(1, 5)
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)
        calls = stop_shortly(cluster, run, 3)
        for number in range(rounds):
            words = stop_for_long(cluster, run, number, 15 if run.long else 7)
        run.figures(
            f"3 s: no death, no restart, {calls} calls of an actor and all others "
            f"right; {rounds} times {words}"
        )
