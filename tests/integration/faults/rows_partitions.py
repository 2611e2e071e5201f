# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 18: a node and the GCS do not hear each other, for shorter and for longer than a node may be
silent. Row apart: two nodes do not hear each other, while the GCS hears both."""

import re
import threading
import time

import numpy as np
import sheaf
from node_cluster import WAIT_S, Cluster, Marks, array_of, expected, outcome, wait_until
from sheaf.util.scheduling_strategies import NodeAffinitySchedulingStrategy

MIB = 1 << 20


@sheaf.remote(num_cpus=0.5)
def marked(path, seed, number, seconds=0.0):
    Marks.add(path, number)
    time.sleep(seconds)
    return expected(seed, number)


@sheaf.remote(num_cpus=0.5)
class Recorder:
    """Says which calls it accepted, and counts them."""

    def __init__(self, path):
        self.path = path
        self.total = 0

    def accept(self, number):
        Marks.add(self.path, number)
        self.total += 1
        return self.total


class Caller(threading.Thread):
    """Calls a named actor, one call after the other, and keeps what came of each."""

    def __init__(self, actor):
        super().__init__()
        self.actor = actor
        self.over = threading.Event()
        self.values, self.errors, self.failure = [], [], None

    def run(self):
        number = 0
        try:
            while not self.over.is_set():
                value, error = outcome(self.actor.accept.remote(number), 90)
                number += 1
                if error is None:
                    self.values.append((number - 1, value))
                else:
                    self.errors.append(error)
                    time.sleep(0.05)
        except BaseException as failure:
            self.failure = failure

    def end(self):
        self.over.set()
        self.join(100)
        assert not self.is_alive(), "a call of the actor neither ended nor failed"
        if self.failure:
            raise self.failure


def soft(node):
    return NodeAffinitySchedulingStrategy(node.node_id, soft=True)


def one_at_a_time(marks: Marks) -> int:
    """O5: of two incarnations, the older accepts nothing any more once the younger does. Their
    number."""
    incarnations = []
    for _, process, _ in sorted(marks.all(), key=lambda mark: mark[2]):
        if not incarnations or incarnations[-1] != process:
            assert process not in incarnations, (
                f"process {process} accepted a call after a later incarnation did"
            )
            incarnations.append(process)
    return len(incarnations)


def short_partition(cluster, run, seconds):
    """Nobody dies, nothing fails, and nobody has to do anything twice."""
    marks, accepted = Marks(cluster.directory), Marks(cluster.directory, "accepted-short")
    actor = Recorder.options(scheduling_strategy=soft(cluster.nodes[3])).remote(accepted.path)
    assert sheaf.get(actor.accept.remote(-1), timeout=WAIT_S) == 1
    caller = Caller(actor)
    caller.start()
    calls = {
        number: marked.options(max_retries=0, resources={"n3": 1}).remote(
            marks.path, run.seed, number, 0.1
        )
        for number in range(20)
    }
    cluster.network.both(1, 3, loss=1.0)
    time.sleep(seconds)  # The fault itself.
    cluster.network.heal()
    for number, call in calls.items():
        assert sheaf.get(call, timeout=WAIT_S) == expected(run.seed, number)
    time.sleep(1)  # Were anybody declared dead, it would have been by now.
    caller.end()
    assert not caller.errors, caller.errors[0]
    assert [value for _, value in caller.values] == list(range(2, len(caller.values) + 2))
    assert set(marks.counts().values()) == {1} and len(marks.counts()) == 20
    assert one_at_a_time(accepted) == 1
    assert all(cluster.is_alive(place) for place in (1, 2, 3))
    return len(caller.values)


def long_partition(cluster, run, seconds, whole):
    """The node is fenced, its work is done elsewhere, once, and another takes its place."""
    marks, once, accepted = (
        Marks(cluster.directory, f"{name}-{seconds}") for name in ("retried", "once", "accepted")
    )
    lost = cluster.nodes[3]
    wait_until(
        lambda: cluster.ask(1, "status")["nodes"][-1]["available"]["CPU"] == 2,
        what="the node is free",
    )
    actor = Recorder.options(
        name=f"recorder-{seconds}",
        lifetime="detached",
        max_restarts=-1,
        max_task_retries=0,
        scheduling_strategy=soft(lost),
    ).remote(accepted.path)
    assert sheaf.get(actor.accept.remote(-1), timeout=WAIT_S) == 1
    caller = Caller(actor)
    caller.start()
    retried = {
        number: marked.options(num_cpus=0.1, max_retries=3, scheduling_strategy=soft(lost)).remote(
            marks.path, run.seed, number, 0.3
        )
        for number in range(40)
    }
    stuck = {
        number: marked.options(num_cpus=0.1, max_retries=0, resources={"n3": 1}).remote(
            once.path, run.seed, number, 60
        )
        for number in range(4)
    }
    wait_until(lambda: len(once.all()) == 4, what="the calls that may run only once run")
    begin = time.monotonic()
    if whole:
        cluster.network.isolate(3, loss=1.0)
    else:
        cluster.network.both(1, 3, loss=1.0)
    known = wait_until(lambda: not cluster.is_alive(3), what="the node is known to be dead")
    assert 3 < known < 15, known  # Five seconds are promised; the machine may be busy.
    for call in stuck.values():
        value, error = outcome(call)
        assert isinstance(
            error, (sheaf.exceptions.NodeDiedError, sheaf.exceptions.WorkerCrashedError)
        ), (value, error)
    for number, call in retried.items():
        assert sheaf.get(call, timeout=WAIT_S) == expected(run.seed, number)
    moved = [value for _, value in caller.values]
    wait_until(
        lambda: len({process for _, process, _ in accepted.all()}) == 2,
        what="the actor accepts calls elsewhere",
    )
    wait_until(
        lambda: not cluster.ask(2, "status")["demand"],
        what="calls that have ended ask for no worker",
    )
    time.sleep(max(0.0, seconds - (time.monotonic() - begin)))  # The fault itself.
    cluster.network.heal()
    left = cluster.expect_end(3)
    caller.end()
    again = cluster.start(3, 2)
    assert again.number != lost.number
    wait_until(lambda: cluster.is_alive(3), what="the new node is seen")
    assert sheaf.get(
        marked.options(resources={"n3": 1}).remote(marks.path, run.seed, 1000), timeout=WAIT_S
    ) == expected(run.seed, 1000)
    assert len(cluster.alive()) == 3
    assert max(once.counts().values()) == 1
    assert max(marks.counts().values()) <= 2, marks.counts()
    assert one_at_a_time(accepted) == 2
    sheaf.kill(sheaf.get_actor(f"recorder-{seconds}"))
    ran_twice = sum(count == 2 for count in marks.counts().values())
    return (
        f"{'whole' if whole else 'from the GCS alone'} for {seconds} s: dead after "
        f"{known:.1f} s, {ran_twice} of 40 calls ran twice, "
        f"the actor moved once after {len(moved)} calls with {len(caller.errors)} "
        f"typed errors, the old node left {left:.1f} s after the heal"
    )


def row_18(run):
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)
        calls = short_partition(cluster, run, 2)
        words = [f"2 s: no death, {calls} calls of an actor right"]
        whole = run.random.random() < 0.5
        words.append(long_partition(cluster, run, run.count(7, 10), whole))
        if run.long:
            words.append(long_partition(cluster, run, 60, not whole))
        run.figures("; ".join(words))


@sheaf.remote(num_cpus=0.1)
class Keeper:
    """Owns objects on its node."""

    def make(self, seed, number):
        return [sheaf.put(array_of(seed, number, MIB))]

    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds


@sheaf.remote(num_cpus=0.1, max_retries=3)
def make(seed, number):
    return array_of(seed, number, MIB)


@sheaf.remote(num_cpus=0.1, max_retries=3)
def where():
    return sheaf.get_runtime_context().get_node_id()


class Waiting(threading.Thread):
    """One wait: what came of it and when."""

    def __init__(self, name, reference, bound_s):
        super().__init__()
        self.name, self.reference, self.bound_s = name, reference, bound_s
        self.end = None
        self.start()

    def run(self):
        begin = time.monotonic()
        try:
            self.end = (*outcome(self.reference, self.bound_s), time.monotonic() - begin)
        except AssertionError as late:
            self.end = (None, late, time.monotonic() - begin)

    def ended(self):
        self.join(self.bound_s + 10)
        value, error, took = self.end
        assert not isinstance(error, AssertionError), f"{self.name}: {error}"
        return value, error, took


def avoid_the_unheard(run):
    """Long before anybody is ended, new work goes where the driver's node hears somebody; and there
    again once it does."""
    with Cluster(seed=run.seed, cpus=(0, 2, 2, 2), node_flags=["--unheard-limit=300"]) as cluster:
        cluster.connect(2)
        unheard = cluster.nodes[3]
        near = where.options(num_cpus=0, scheduling_strategy=soft(unheard))
        assert sheaf.get(near.remote(), timeout=WAIT_S) == unheard.node_id
        cluster.network.rule(2, 3, loss=1.0)
        cluster.network.rule(3, 2, loss=1.0)
        words = f"the link to node {unheard.number} is down"
        begin = time.monotonic()
        wait_until(lambda: words in cluster.nodes[2].log(), what="the silence is noticed")
        noticed = time.monotonic() - begin
        spread = where.options(num_cpus=0, scheduling_strategy="SPREAD")
        places = sheaf.get(
            [near.remote() for _ in range(4)] + [spread.remote() for _ in range(6)], timeout=WAIT_S
        )
        assert unheard.node_id not in places and len(cluster.alive()) == 4, places
        cluster.network.heal()
        again = Waiting(
            "a call that only that node can take",
            where.options(resources={"n3": 1}).remote(),
            WAIT_S,
        )
        assert again.ended()[:2] == (unheard.node_id, None), again.end
        wait_until(
            lambda: sheaf.get(near.remote(), timeout=WAIT_S) == unheard.node_id,
            what="it is given work again",
        )
        return noticed


def row_apart(run):
    """Calls, objects and actors between the two: each wait ends, in a value or a typed error, and
    work is placed elsewhere."""
    noticed = avoid_the_unheard(run)
    limit = run.count(3, 15)
    bound = (
        5 + limit + 8 + WAIT_S
    )  # Silence, the limit, the verdict; and what is done then, on a busy machine.
    with Cluster(
        seed=run.seed, cpus=(0, 2, 2, 2), node_flags=[f"--unheard-limit={limit}"]
    ) as cluster:
        cluster.connect(2)
        marks, once, accepted = (
            Marks(cluster.directory, name) for name in ("retried", "once", "accepted")
        )
        lost = cluster.nodes[3]
        keeper = Keeper.options(resources={"n3": 1}).remote()
        (owned_there,) = sheaf.get(keeper.make.remote(run.seed, 1), timeout=WAIT_S)
        made_there = make.options(scheduling_strategy=soft(lost)).remote(run.seed, 2)
        sheaf.wait([made_there], timeout=WAIT_S, fetch_local=False)
        actor = Recorder.options(
            name="apart",
            lifetime="detached",
            max_restarts=-1,
            max_task_retries=0,
            scheduling_strategy=soft(lost),
        ).remote(accepted.path)
        assert sheaf.get(actor.accept.remote(-1), timeout=WAIT_S) == 1
        movable = Keeper.options(
            max_restarts=1, max_task_retries=1, scheduling_strategy=soft(lost)
        ).remote()
        assert sheaf.get(movable.sleep.remote(0), timeout=WAIT_S) == 0
        retried = {
            number: marked.options(
                num_cpus=0.1, max_retries=3, scheduling_strategy=soft(lost)
            ).remote(marks.path, run.seed, number, 120)
            for number in range(2)
        }
        stuck = {
            number: marked.options(num_cpus=0.1, max_retries=0, resources={"n3": 1}).remote(
                once.path, run.seed, number, 120
            )
            for number in range(2)
        }
        wait_until(
            lambda: len(once.all()) == 2 and len(marks.all()) == 2, what="calls run on the node"
        )
        caller = Caller(actor)
        caller.start()
        one_way = run.random.random() < 0.5
        begin = time.monotonic()
        cluster.network.rule(2, 3, loss=1.0)
        if not one_way:
            cluster.network.rule(3, 2, loss=1.0)
        waits = [
            Waiting("an object owned there", owned_there, bound),
            Waiting("an object made there", made_there, bound),
            Waiting("a call of an actor there", keeper.sleep.remote(0), bound),
            Waiting("a call of an actor that may move", movable.sleep.remote(0), bound),
        ]
        waits += [Waiting("a call without retries", call, bound) for call in stuck.values()]
        more = [
            Waiting("a new call", where.options(scheduling_strategy=soft(lost)).remote(), bound)
            for _ in range(8)
        ]
        ends = [wait.ended() for wait in waits]
        for wait in more:
            place, error, _ = wait.ended()
            assert error is None and place in {node.node_id for node in cluster.nodes.values()} - {
                lost.node_id
            }, (place, error)
        slowest = max(took for _, _, took in ends)
        owned, made, call, moved, *without = ends
        lost_errors = (
            sheaf.exceptions.ObjectLostError,
            sheaf.exceptions.OwnerDiedError,
            sheaf.exceptions.NodeDiedError,
        )
        assert isinstance(owned[1], lost_errors) or np.array_equal(
            owned[0], array_of(run.seed, 1, MIB)
        ), owned
        assert made[1] is None and np.array_equal(made[0], array_of(run.seed, 2, MIB)), made
        assert call[1] is None or isinstance(
            call[1], (sheaf.exceptions.RayActorError, sheaf.exceptions.NodeDiedError)
        ), call
        assert moved[:2] == (0, None), moved
        for value, error, _ in without:
            assert isinstance(
                error, (sheaf.exceptions.NodeDiedError, sheaf.exceptions.WorkerCrashedError)
            ), (value, error)
        left = cluster.expect_end(
            3
        )  # Of two that are alike the younger goes; while they still do not hear each other.
        reason = re.search(rf"node {lost.number} is ended: (.*)", cluster.nodes[1].log()).group(1)
        assert "do not hear each other, while the GCS hears both" in reason, reason
        wait_until(
            lambda: len({process for _, process, _ in accepted.all()}) == 2,
            what="the detached actor accepts calls elsewhere",
        )
        took = time.monotonic() - begin
        caller.end()
        assert one_at_a_time(accepted) == 2
        cluster.network.heal()
        for number in retried:
            wait_until(
                lambda number=number: marks.counts()[number] == 2,
                what="a call with retries runs again",
            )
            sheaf.cancel(retried[number], force=True)
            outcome(retried[number])
        assert max(once.counts().values()) == 1 and max(marks.counts().values()) == 2
        cluster.start(3, 2)
        wait_until(lambda: cluster.is_alive(3), what="the new node is seen")
        assert (
            sheaf.get(where.options(resources={"n3": 1}).remote(), timeout=WAIT_S)
            == cluster.nodes[3].node_id
        )
        assert len(cluster.alive()) == 4
        sheaf.kill(sheaf.get_actor("apart"))
        run.figures(
            f"silent to each other: after {noticed:.1f} s new work went elsewhere, "
            "though both lived, and there again once they heard each other; "
            f"{'one way' if one_way else 'both ways'} lost, with a limit of {limit} "
            f"s: '{reason}'; the node ended {left:.1f} s after the last of "
            f"{len(waits)} waits, "
            f"of which the slowest took {slowest:.1f} s; new calls ran elsewhere; a "
            f"detached actor moved once, within {took:.1f} s, after "
            f"{len(caller.values)} calls with {len(caller.errors)} typed errors; "
            "nothing without retries ran twice"
        )
