# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row fencing (the second part of row 17): a head is stopped, a copy of its disk leads elsewhere,
and then it wakes.

The nodes know the head by the address of a proxy, as by a service address. A head with a copy of
the disk takes the address over, in a later term. Whatever the old one was asked for while it slept,
and does when it wakes, has no effect beyond itself: the nodes refuse it, by name of its term, and
it ends by itself.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

import sheaf
from node_cluster import WAIT_S, Cluster, Marks, expected, stop, wait_until
from packet_switch import address_of
from rows_disk import Clerk, Writers, all_there
from rows_partitions import Caller, Recorder, marked, one_at_a_time
from sheaf import _core
from switchable_proxy import Proxy

PROXY, DRIVERS, ACTORS = 2, 3, 4  # Places; the heads are at 1, and from 5 on.
TYPED = (sheaf.exceptions.RayError, ConnectionError, TimeoutError, OSError, RuntimeError)
LATE_KEY = "from-a-term-that-is-over"
PAUSE_S = 4  # Three are a pause after which the GCS acknowledges nothing for HELD_S.
HELD_S = 2
AWAY_S = 1.5  # The nodes are away from their head for less than the five seconds that it allows.


def head_address(place):
    return f"{address_of(place)}:6379"


def driver_at_the_old_head(session, seed, name, path, late_path):
    """A program at the head that is going to be stopped: it has work on other nodes, and asks for
    more while the head sleeps."""
    sheaf.init(address=session, log_to_driver=False, namespace="faults")
    witness = sheaf.get_actor(name)
    ends, lock = {}, threading.Lock()

    def attempt(what, call):
        try:
            call()
            end = "value"
        except TYPED as error:
            end = type(error).__name__
        with lock:
            ends[what] = end

    def work():
        number = 0
        while True:
            calls = [
                marked.options(max_retries=0, num_cpus=0.1, resources={f"n{place}": 1}).remote(
                    path, seed, number + i
                )
                for i, place in enumerate((DRIVERS, ACTORS))
            ]
            assert sheaf.get(calls, timeout=120) == [expected(seed, number + i) for i in range(2)]
            if number == 0:
                print("running", flush=True)
            number += 2

    def late_tasks():
        sheaf.get(
            [
                marked.options(num_cpus=0.1, resources={"n4": 0.1}).remote(late_path, seed, n)
                for n in range(4)
            ],
            timeout=120,
        )

    def late_call():
        sheaf.get(witness.accept.remote(-7), timeout=120)

    def late_actor():
        actor = Recorder.options(name="late", lifetime="detached", resources={"n4": 0.1}).remote(
            late_path
        )
        sheaf.get(actor.accept.remote(0), timeout=120)

    threads = [threading.Thread(target=attempt, args=("calls that ran all the time", work))]
    threads[0].start()
    sys.stdin.readline()
    for what, call in (
        ("tasks", late_tasks),
        ("call", late_call),
        ("actor", late_actor),
        ("kill", lambda: sheaf.kill(witness)),
        ("key", lambda: _core.key_put("faults", LATE_KEY, b"1", True)),
    ):
        threads.append(threading.Thread(target=attempt, args=(what, call)))
        threads[-1].start()
    time.sleep(0.2)  # They are on their way to the head, which does not take them.
    print("asked", flush=True)
    for thread in threads:
        thread.join(150)
        assert not thread.is_alive(), "a call neither ended nor failed"
    print(json.dumps(ends), flush=True)


class OldHead:
    """A head that is stopped, with a driver beside it, and the copy of its disk."""

    def __init__(self, cluster, run, number, place, witness):
        self.cluster, self.place, self.node = cluster, place, cluster.nodes[place]
        self.marks, self.late = (
            Marks(cluster.directory, f"old-{number}"),
            Marks(cluster.directory, f"late-{number}"),
        )
        program = (
            "import rows_fencing; "
            f"rows_fencing.driver_at_the_old_head({self.node.session!r}, "
            f"{run.seed}, {witness!r}, "
            f"{self.marks.path!r}, {self.late.path!r})"
        )
        self.driver = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ.copy(),
        )
        self.expect("running")

    def expect(self, word):
        assert self.driver.stdout.readline() == word + "\n", (
            f"the driver at the old head ended before it was {word}"
        )

    def stop(self):
        """With orders that have not left: its cable is cut a moment before."""
        self.cluster.network.isolate(self.place, loss=1.0)
        time.sleep(0.2)
        stop(self.node.pid)
        self.stopped_at = time.monotonic()

    def copy_disk(self, number):
        copy = f"{self.node.session}-moved-{number}"

        def sockets(folder, names):
            return [
                name
                for name in names
                if stat.S_ISSOCK(os.lstat(os.path.join(folder, name)).st_mode)
            ]

        shutil.copytree(self.node.session, copy, ignore=sockets)
        return copy

    def ask_while_it_sleeps(self):
        self.driver.stdin.write("go\n")
        self.driver.stdin.flush()
        self.expect("asked")

    def wake(self):
        os.kill(self.node.pid, signal.SIGCONT)

    def knows(self):
        return (
            "is over: its cluster follows a later start" in self.node.log()
            or not self.node.is_running()
        )

    def ended(self):
        """It ended by itself, said why, and its driver was told. What came of the driver's
        calls."""
        wait_until(lambda: not self.node.is_running(), what=f"the old head {self.node.pid} ends")
        reasons = [line for line in self.node.log().splitlines() if "ending: " in line]
        assert len(reasons) == 1, reasons
        terms = re.search(r"the term (\d+) of the GCS is over: .* in term (\d+)", reasons[0])
        assert terms and int(terms[1]) < int(terms[2]), reasons
        said, _ = self.driver.communicate(timeout=60)
        assert self.driver.returncode == 0, said
        return json.loads(said)


def move(cluster, run, proxy, number, place, next_place, through_the_proxy, witness):
    """The head at `place` is stopped, one at `next_place` leads, the old one wakes. What came of
    what it was asked for."""
    cluster.network.heal()
    old = OldHead(cluster, run, number, place, witness)
    try:
        old.stop()
        copy = old.copy_disk(number)
        new = cluster.start(next_place, 0, [f"--resume={copy}"], head=True)
        proxy.point_at(head_address(next_place))

        def follows():
            rows = {row["node"]: row["state"] for row in cluster.ask(next_place, "status")["nodes"]}
            members = {cluster.nodes[at].number for at in (DRIVERS, ACTORS)} | {new.number}
            return {node for node, state in rows.items() if state == "ALIVE"} == members

        wait_until(follows, what="the nodes follow the new head, and the old one's node is dead")
        for at in (DRIVERS, ACTORS):
            text = f"node {old.node.number} is dead"
            wait_until(
                lambda at=at: (
                    old.node.number
                    not in {
                        row["node"]
                        for row in cluster.ask(at, "status")["nodes"]
                        if row["state"] == "ALIVE"
                    }
                ),
                what=text,
            )
        led_at = time.monotonic_ns()
        old.ask_while_it_sleeps()
        time.sleep(max(0.0, old.stopped_at + PAUSE_S - time.monotonic()))  # The fault itself.
        woke = time.monotonic()
        if through_the_proxy:
            # Only who dials the service address speaks with the old head.
            for at in (DRIVERS, ACTORS, next_place):
                cluster.network.both(place, at, loss=1.0)
            cluster.network.both(place, PROXY)
            old.wake()
            for _ in range(5):
                proxy.point_at(head_address(place))
                with contextlib.suppress(AssertionError):
                    wait_until(old.knows, AWAY_S)
                proxy.point_at(head_address(next_place))
                if old.knows():
                    break
                time.sleep(1)
            else:  # On a busy machine no node dialled it in that time: it may dial them.
                cluster.network.heal()
                wait_until(old.knows, what="the old head hears of the later term")
        else:
            cluster.network.heal()
            old.wake()
            wait_until(old.knows, what="the old head hears of the later term")
        heard = time.monotonic() - woke
        ends = old.ended()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(old.node.pid, signal.SIGCONT)
        old.driver.kill()
        old.driver.wait(10)
        old.driver.stdin.close()
        old.driver.stdout.close()
    cluster.network.heal()
    del cluster.nodes[place]
    assert not [mark for mark in old.marks.all() if mark[2] > led_at], (
        "a call of a node that is dead ran under the new head"
    )
    assert not old.late.all(), (
        f"what the old head was asked for while it slept ran: {old.late.all()}"
    )
    known = dict(ends)
    if (
        heard > HELD_S
    ):  # The GCS acknowledges again, when it has not been contradicted for so long after a pause.
        del known["key"], known["kill"]
    assert "value" not in known.values(), (heard, ends)
    assert _core.key_get("faults", LATE_KEY) is None, "a write of the term that is over is there"
    try:
        sheaf.get_actor("late")
    except ValueError:
        return ends
    raise AssertionError("an actor of the term that is over has a name")


def row_fencing(run):
    rounds = run.count(1, 10)
    with contextlib.ExitStack() as stack:
        cluster = Cluster(seed=run.seed, cpus=(0,))
        while cluster.network.add() < ACTORS:
            pass
        proxy = Proxy(cluster.network, PROXY, head_address(1))
        stack.callback(proxy.close)  # Behind the cluster: nodes leave through it.
        stack.enter_context(cluster)
        cluster.head_address = proxy.address
        for place in (DRIVERS, ACTORS):
            cluster.start(place, 2)
        cluster.connect(DRIVERS)
        accepted = Marks(cluster.directory, "accepted")
        witness = Recorder.options(
            name="witness", lifetime="detached", max_restarts=-1, resources={"n4": 1}
        ).remote(accepted.path)
        assert sheaf.get(witness.accept.remote(-1), timeout=WAIT_S) == 1
        caller = Caller(witness)
        caller.start()
        kept, names, ways, ends, place = {}, [], [], {}, 1
        for number in range(rounds):
            writers = Writers(run.seed, number)
            wait_until(lambda: len(writers.acknowledged) > 5, what="keys are written")
            names.append(f"clerk-{number}")
            Clerk.options(
                name=names[-1], lifetime="detached", num_cpus=0
            ).remote()  # Returns when it is durable.
            # The long form alone: the nodes must be back at their head in five seconds, which a
            # busy machine may not keep.
            through_the_proxy = run.long and (number + run.seed) % 2 == 0
            next_place = cluster.network.add()
            ends = move(
                cluster, run, proxy, number, place, next_place, through_the_proxy, "witness"
            )
            ways.append("through the service address" if through_the_proxy else "by itself")
            place = next_place
            seen = len(caller.values)
            wait_until(lambda: len(caller.values) > seen + 10, 60, "the calls of the actor go on")
            writers.end()
            kept |= writers.acknowledged
            all_there(kept)
            # This program's job; the one at the old head is over.
            wait_until(
                lambda: (
                    [row["state"] for row in cluster.ask(place, "list", "jobs")["jobs"]].count(
                        "RUNNING"
                    )
                    == 1
                ),
                what="one job runs",
            )
        caller.end()
        assert not caller.errors, caller.errors[0]
        assert [value for _, value in caller.values] == list(range(2, len(caller.values) + 2))
        assert one_at_a_time(accepted) == 1
        for name in names:
            actor = sheaf.get_actor(name)
            assert sheaf.get(actor.add.remote(), timeout=WAIT_S) == 1
            sheaf.kill(actor)
        sheaf.kill(witness)
        assert all(cluster.is_alive(at) for at in (DRIVERS, ACTORS, place))
        run.figures(
            f"{rounds} heads stopped, each followed by one with a copy of its disk, "
            "in a later term; the old one woke, was heard "
            f"{' and '.join(sorted(set(ways)))}, ended and said why; of what it was "
            f"asked for in its sleep nothing had an effect (last: {ends}); "
            f"{len(caller.values)} calls of an actor, {len(kept)} acknowledged keys "
            f"and {len(names)} names right"
        )
