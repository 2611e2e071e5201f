# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 10: a machine is lost, with the results of a deep chain of tasks and of generators on it."""

import json
import os
import time

import numpy as np
import sheaf
from node_cluster import WAIT_S, Cluster, Marks, array_of, expected, outcome, wait_until
from rows_partitions import Waiting, soft

DEEP = 50
SIZE = 200_000  # Bytes: lies in the store, not in a reply.


@sheaf.remote(num_cpus=0.1, max_retries=5)
def further(path, seed, number, before):
    Marks.add(path, number)
    return before + expected(seed, number) % 1000


def items(path, seed):
    """As many as the file says when it runs."""
    with open(path, encoding="utf-8") as file:
        count = json.load(file)
    for number in range(count):
        yield array_of(seed, number, SIZE)


four = sheaf.remote(num_cpus=0.1, max_retries=5, num_returns=4)(items)
streamed = sheaf.remote(num_cpus=0.1, max_retries=5)(items)
collected = sheaf.remote(num_cpus=0.1, max_retries=5, num_returns="dynamic")(items)


@sheaf.remote(num_cpus=0.1, max_retries=5)
def halfway(seed, path):
    """Six items; the first time it stays behind the third."""
    for number in range(6):
        yield array_of(seed, number, SIZE)
        if number == 2:
            Marks.add(path, 0)
            if os.path.getsize(path) == Marks.RECORD.size:
                time.sleep(3600)


class Chain:
    """`DEEP` tasks, each with the result of the one before it; on one node."""

    def __init__(self, cluster, run, name, at):
        self.marks = Marks(cluster.directory, name)
        self.seed = run.seed
        self.source = value = sheaf.put(
            array_of(run.seed, 10**6, SIZE)
        )  # Held: nothing can make it again.
        self.references = []
        for number in range(DEEP):
            value = further.options(scheduling_strategy=soft(at)).remote(
                self.marks.path, run.seed, number, value
            )
            self.references.append(value)

    def right(self, number, value):
        wanted = array_of(self.seed, 10**6, SIZE) + sum(
            expected(self.seed, i) % 1000 for i in range(number + 1)
        )
        assert np.array_equal(value, wanted), f"result {number} of the chain is wrong"

    def most(self):
        return max(self.marks.counts().values())


def how_many(path, count):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(count, file)


def lose_a_machine(cluster, run, number):
    """One round, in words."""
    seed, lost = run.seed, cluster.nodes[3]
    wait_until(lambda: cluster.is_alive(3), what="the node is there")
    kept, last_only = (Chain(cluster, run, f"{name}-{number}", lost) for name in ("kept", "last"))
    del last_only.references[:-1]
    counts = {}
    several, streams = {}, {}
    for again in (2, 4, 5):  # How many it yields when it runs again; four at first.
        counts[again] = os.path.join(cluster.scratch, f"items-{number}-{again}")
        how_many(counts[again], 4)
        several[again] = four.options(scheduling_strategy=soft(lost)).remote(counts[again], seed)
        streams[again] = list(
            streamed.options(scheduling_strategy=soft(lost)).remote(counts[again], seed)
        )
    held = collected.options(scheduling_strategy=soft(lost)).remote(counts[2], seed)
    begun = Marks(cluster.directory, f"begun-{number}")
    half = halfway.options(scheduling_strategy=soft(lost)).remote(seed, begun.path)
    made = [
        kept.references[-1],
        last_only.references[-1],
        held,
        *(reference for references in several.values() for reference in references),
    ]
    ready, _ = sheaf.wait(made, num_returns=len(made), timeout=2 * WAIT_S, fetch_local=False)
    assert len(ready) == len(made), "the results are not made"
    wait_until(lambda: len(begun.all()) == 1, what="the generator that stays half way has yielded")
    there = set(cluster.processes(3))
    assert {
        process for chain in (kept, last_only) for _, process, _ in chain.marks.all()
    } <= there, "not all ran on the node to be lost"
    stored = cluster.ask(3, "status")["store"]["objects"]
    assert stored >= DEEP + 12, stored
    how_many(counts[2], 2)
    how_many(counts[5], 5)

    cluster.network.isolate(3, loss=1.0)
    begin = time.monotonic()
    cluster.crash(3)
    first = Waiting("the end of a chain", kept.references[-1], 90)
    known = wait_until(
        lambda: lost.node_id not in cluster.alive(), what="the node is known to be dead"
    )
    assert known < 15, known  # Five seconds are promised; the machine may be busy.
    value, error, _ = first.ended()
    took = time.monotonic() - begin
    assert error is None, error
    kept.right(DEEP - 1, value)
    last_only.right(DEEP - 1, sheaf.get(last_only.references[-1], timeout=90))
    for step, reference in enumerate(kept.references):
        kept.right(step, sheaf.get(reference, timeout=WAIT_S))
    for chain in (kept, last_only):
        assert len(chain.marks.counts()) == DEEP and chain.most() <= 6, chain.marks.counts()
    assert kept.most() > 1 and last_only.most() > 1, (
        "nothing was computed again: this run shows nothing"
    )
    # Generators.
    ends = {
        again: [outcome(reference) for reference in references]
        for again, references in several.items()
    }
    for again in (2, 4, 5):  # Too many are dropped; of too few the results that are there stay.
        for i, (value, error) in enumerate(ends[again][: min(again, 4)]):
            assert error is None and np.array_equal(value, array_of(seed, i, SIZE)), error
    for _, error in ends[2][2:]:
        assert isinstance(error, sheaf.exceptions.RayTaskError), ends[2]
        assert "Task returned 2 objects, but num_returns=4" in str(error), error
    for again, references in streams.items():
        assert len(references) == 4, references
        for i, (value, error) in enumerate(outcome(reference) for reference in references):
            if i < again:
                assert error is None and np.array_equal(value, array_of(seed, i, SIZE)), (
                    again,
                    i,
                    error,
                )
            else:
                assert isinstance(
                    error, sheaf.exceptions.StreamingGeneratorReplayInconsistentError
                ), (again, i, error)
                assert "yielded 2 items when it ran again, after 4" in str(error), error
    inner, error = outcome(held)
    for reference in inner or []:  # Its worker owned them.
        _, error = outcome(reference)
        assert isinstance(error, sheaf.exceptions.ObjectLostError), error
    assert error is not None
    rest = [outcome(reference) for reference in half]
    assert len(rest) == 6, rest
    for i, (value, error) in enumerate(rest):
        assert error is None and np.array_equal(value, array_of(seed, i, SIZE)), (i, error)
    assert len(begun.all()) == 2, begun.all()
    # Another machine in its place.
    cluster.network.heal()
    assert cluster.start(3, 2).number > lost.number
    wait_until(lambda: cluster.is_alive(3), what="the new node is seen")
    reference = further.options(resources={"n3": 1}).remote(kept.marks.path, seed, 1000, 0)
    assert sheaf.get(reference, timeout=WAIT_S) == expected(seed, 1000) % 1000
    ran = [sum(chain.marks.counts().values()) - DEEP for chain in (kept, last_only)]
    return (
        f"dead after {known:.1f} s, the end of the chain right {took:.1f} s after "
        f"the loss, all {DEEP} results right, {ran[0]} tasks run again, {ran[1]} of "
        "a "
        "chain of which only the end was kept; of generators that ran again those "
        "with 2 or 5 items instead of 4 ended in "
        f"{type(ends[2][0][1]).__name__} "
        f"('{str(ends[2][0][1]).strip().splitlines()[-1][:90]}'), those with 4 in "
        "their values; items of streams "
        "that ran again came back, those that were not yielded again as "
        "StreamingGeneratorReplayInconsistentError; a stream that was half way "
        "went on"
    )


def row_10(run):
    rounds = run.count(1, 10)
    with Cluster(seed=run.seed, cpus=(0, 2, 2, 2)) as cluster:
        cluster.connect(2)
        for number in range(rounds):
            words = lose_a_machine(cluster, run, number)
        run.figures(f"{rounds} machines lost; the last: {words}")
