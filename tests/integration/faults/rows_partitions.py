# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 18: a node and the GCS do not hear each other, for shorter and for longer than a node may be silent."""

import threading
import time

import sheaf
from node_cluster import WAIT_S, Cluster, Marks, expected, outcome, wait_until
from sheaf.util.scheduling_strategies import NodeAffinitySchedulingStrategy


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
    """O5: of two incarnations, the older accepts nothing any more once the younger does. Their number."""
    incarnations = []
    for _, process, _ in sorted(marks.all(), key=lambda mark: mark[2]):
        if not incarnations or incarnations[-1] != process:
            assert process not in incarnations, f"process {process} accepted a call after a later incarnation did"
            incarnations.append(process)
    return len(incarnations)


def short_partition(cluster, run, seconds):
    """Nobody dies, nothing fails, and nobody has to do anything twice."""
    marks, accepted = Marks(cluster.directory), Marks(cluster.directory, "accepted-short")
    actor = Recorder.options(scheduling_strategy=soft(cluster.nodes[3])).remote(accepted.path)
    assert sheaf.get(actor.accept.remote(-1), timeout=WAIT_S) == 1
    caller = Caller(actor)
    caller.start()
    calls = {number: marked.options(max_retries=0, resources={"n3": 1}).remote(marks.path, run.seed, number, 0.1) for number in range(20)}
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
    marks, once, accepted = (Marks(cluster.directory, f"{name}-{seconds}") for name in ("retried", "once", "accepted"))
    lost = cluster.nodes[3]
    wait_until(lambda: cluster.ask(1, "status")["nodes"][-1]["available"]["CPU"] == 2, what="the node is free")
    actor = Recorder.options(name=f"recorder-{seconds}", lifetime="detached", max_restarts=-1, max_task_retries=0,
                             scheduling_strategy=soft(lost)).remote(accepted.path)
    assert sheaf.get(actor.accept.remote(-1), timeout=WAIT_S) == 1
    caller = Caller(actor)
    caller.start()
    retried = {number: marked.options(num_cpus=0.1, max_retries=3, scheduling_strategy=soft(lost)).remote(marks.path, run.seed, number, 0.3)
               for number in range(40)}
    stuck = {number: marked.options(num_cpus=0.1, max_retries=0, resources={"n3": 1}).remote(once.path, run.seed, number, 60)
             for number in range(4)}
    wait_until(lambda: len(once.all()) == 4, what="the calls that may run only once run")
    begin = time.monotonic()
    if whole:
        cluster.network.isolate(3, loss=1.0)
    else:
        cluster.network.both(1, 3, loss=1.0)
    known = wait_until(lambda: not cluster.is_alive(3), what="the node is known to be dead")
    assert 3 < known < 15, known  # Five seconds are promised; the machine may be busy.
    for number, call in stuck.items():
        value, error = outcome(call)
        assert isinstance(error, (sheaf.exceptions.NodeDiedError, sheaf.exceptions.WorkerCrashedError)), (value, error)
    for number, call in retried.items():
        assert sheaf.get(call, timeout=WAIT_S) == expected(run.seed, number)
    moved = [value for _, value in caller.values]
    wait_until(lambda: len({process for _, process, _ in accepted.all()}) == 2, what="the actor accepts calls elsewhere")
    wait_until(lambda: not cluster.ask(2, "status")["demand"], what="calls that have ended ask for no worker")
    time.sleep(max(0.0, seconds - (time.monotonic() - begin)))  # The fault itself.
    cluster.network.heal()
    left = cluster.expect_end(3)
    caller.end()
    again = cluster.start(3, 2)
    assert again.number != lost.number
    wait_until(lambda: cluster.is_alive(3), what="the new node is seen")
    assert sheaf.get(marked.options(resources={"n3": 1}).remote(marks.path, run.seed, 1000), timeout=WAIT_S) == expected(run.seed, 1000)
    assert len(cluster.alive()) == 3
    assert max(once.counts().values()) == 1
    assert max(marks.counts().values()) <= 2, marks.counts()
    assert one_at_a_time(accepted) == 2
    sheaf.kill(sheaf.get_actor(f"recorder-{seconds}"))
    ran_twice = sum(count == 2 for count in marks.counts().values())
    return (f"{'whole' if whole else 'from the GCS alone'} for {seconds} s: dead after {known:.1f} s, {ran_twice} of 40 calls ran twice, "
            f"the actor moved once after {len(moved)} calls with {len(caller.errors)} typed errors, the old node left {left:.1f} s after the heal")


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
