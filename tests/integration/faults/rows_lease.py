# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row lease: the lease of a detached actor. Its node does not hear the GCS, or its raylet is
stopped, or all its processes are.

A driver on the same node goes on calling: its calls reach the actor through memory that they share,
without a raylet. So it is the lease alone that keeps the old incarnation from beginning a call once
another one may answer elsewhere.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import sheaf
from node_cluster import Cluster, Marks, expected, is_running, outcome, stop, wait_until
from sheaf.util.scheduling_strategies import NodeAffinitySchedulingStrategy

SURVIVOR = 2
CUT_OFF, RAYLET_STOPPED, ALL_STOPPED = 3, 4, 5  # Places.
WORDS = {CUT_OFF: "cut off", RAYLET_STOPPED: "raylet stopped", ALL_STOPPED: "all stopped"}
LONG_CALL_S = 1.0


@sheaf.remote(num_cpus=0.2)
class Witness:
    """Writes down when it begins to live and when it begins each call."""

    BORN = -1

    def __init__(self, path, seed):
        self.path, self.seed = path, seed
        Marks.add(path, self.BORN)

    def begin(self, number, seconds=0.0):
        Marks.add(self.path, number)
        time.sleep(seconds)
        return expected(self.seed, number)


def driver(session: str, name: str, seed: int, long_calls: bool) -> None:
    """A program on the actor's node: calls it until the node ends or its input does. Long calls
    wait in the actor's queue, four at once."""
    sheaf.init(address=session, log_to_driver=False, namespace="faults")
    actor = sheaf.get_actor(name)
    values, number, seconds, window = (
        0,
        0,
        (LONG_CALL_S if long_calls else 0.0),
        (4 if long_calls else 1),
    )
    print("running", flush=True)
    error = None
    while error is None:
        calls = [actor.begin.remote(number + i, seconds) for i in range(window)]
        for i, call in enumerate(calls):
            value, failed = outcome(call, 120)
            error = error or failed
            values += failed is None
            assert failed is not None or value == expected(seed, number + i)
        number += window
        time.sleep(0.002)
    print(json.dumps([values, type(error).__name__]), flush=True)


class Place:
    """One node whose actor is about to move, the driver beside it, and what the actor's
    incarnations wrote."""

    def __init__(self, cluster, run, number, place):
        self.cluster, self.place, self.node = cluster, place, cluster.nodes[place]
        self.marks = Marks(cluster.directory, f"lease-{number}-{place}")
        self.name = f"witness-{number}-{place}"
        self.seed = run.seed
        self.actor = Witness.options(
            name=self.name,
            lifetime="detached",
            max_restarts=-1,
            max_task_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(self.node.node_id, soft=True),
        ).remote(self.marks.path, run.seed)
        assert sheaf.get(self.actor.begin.remote(10**6), timeout=90) == expected(run.seed, 10**6)
        self.pid = self.marks.all()[0][1]
        program = (
            f"import rows_lease; rows_lease.driver({self.node.session!r}, "
            f"{self.name!r}, {run.seed}, {place == ALL_STOPPED})"
        )
        self.driver = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ.copy(),
        )
        assert self.driver.stdout.readline() == "running\n"
        wait_until(lambda: len(self.of(self.pid)) > 3, what="the driver's calls run")

    def of(self, pid):
        """(call, ns) of what one incarnation began."""
        return [(call, ns) for call, process, ns in self.marks.all() if process == pid]

    def later(self):
        """The processes of incarnations behind the first."""
        return list(
            dict.fromkeys(process for _, process, _ in self.marks.all() if process != self.pid)
        )

    def strike(self):
        self.struck = time.monotonic_ns()
        if self.place == CUT_OFF:
            self.cluster.network.both(1, self.place, loss=1.0)
        elif self.place == RAYLET_STOPPED:
            stop(self.node.pid)
        else:
            # In the middle of a call, with others behind it: none is between the look at the lease
            # and its first line.
            seen = len(self.of(self.pid))
            wait_until(lambda: len(self.of(self.pid)) > seen, what="another long call begins")
            for pid in (self.pid, self.node.pid, self.driver.pid):
                os.kill(pid, signal.SIGSTOP)
            self.struck = time.monotonic_ns()

    def answers_elsewhere(self):
        """The new incarnation gives a value to whoever asks on the survivor."""

        def answered():
            value, error = outcome(self.actor.begin.remote(10**6 + 1), 90)
            assert error is not None or value == expected(self.seed, 10**6 + 1)
            return error is None and self.later()

        return wait_until(answered, 60, f"{self.name} answers elsewhere")

    def wake_actor(self):
        """Only the actor's process goes on: it ends the call that it was in, and must begin none of
        those behind it."""
        before = len(self.of(self.pid))
        os.kill(self.pid, signal.SIGCONT)
        time.sleep(LONG_CALL_S + 1)  # Time to do wrong.
        assert is_running(self.pid), "the actor ended before it could do wrong"
        assert len(self.of(self.pid)) == before, (
            f"began {self.of(self.pid)[before:]} after its lease had ended"
        )

    def continue_all(self):
        for pid in (self.pid, self.node.pid, self.driver.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def judge(self):
        """O5 from the records: the last thing the old incarnation began lies before all that the
        new one did."""
        old, later = self.of(self.pid), self.later()
        assert len(later) == 1, f"{self.name} had incarnations {[self.pid, *later]}"
        new = self.of(later[0])
        assert new[0][0] == Witness.BORN
        last, born = old[-1][1], new[0][1]
        assert last < born, (
            f"{self.name} began call {old[-1][0]} {(last - born) / 1e9:.3f} s after "
            "its successor was born"
        )
        after = [ns for _, ns in old if ns > self.struck]
        if self.place != ALL_STOPPED:
            assert after, "no call was begun after the fault: this run shows nothing"
        return (
            f"{WORDS[self.place]}: {len(after)} calls begun after the fault, the "
            f"last {max(0, last - self.struck) / 1e9:.1f} s after it, the next "
            f"incarnation born at {(born - self.struck) / 1e9:.1f} s"
        )

    def end(self):
        said, _ = self.driver.communicate(timeout=60)
        assert self.driver.returncode == 0, (self.driver.returncode, said)
        values, error = json.loads(said)
        sheaf.kill(sheaf.get_actor(self.name))
        return values, error


def row_lease(run):
    rounds = run.count(1, 10)
    words, ends = [], []
    with Cluster(seed=run.seed, cpus=(0, 2, 1, 1, 1)) as cluster:
        cluster.connect(SURVIVOR)
        for number in range(rounds):
            places = [Place(cluster, run, number, place) for place in WORDS]
            try:
                for place in run.random.sample(places, len(places)):
                    place.strike()
                for place in places:
                    place.answers_elsewhere()
                places[-1].wake_actor()
                words = [place.judge() for place in places]
            finally:
                for place in places:
                    place.continue_all()
                cluster.network.heal()
            for place in places:
                cluster.expect_end(place.place)  # It hears that it was declared dead.
            words = [place.judge() for place in places]  # Nor did it begin any on its way out.
            ends += [place.end() for place in places]
            assert cluster.is_alive(SURVIVOR) and cluster.is_alive(1)
            if number + 1 < rounds:
                for place in WORDS:
                    cluster.start(place, 1)
                wait_until(lambda: len(cluster.alive()) == 5, what="new nodes have joined")
        errors = sorted({error for _, error in ends})
        run.figures(
            f"{rounds} rounds of three nodes; in the last: {'; '.join(words)}; "
            f"{sum(values for values, _ in ends)} calls of drivers beside the "
            f"actors right, each driver ended by {' or '.join(errors)}; never two "
            "incarnations at once"
        )
