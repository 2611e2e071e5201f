# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Calls whose arguments are together more than the store, and which put and return values of the
same size: all get room, in the order in which they ask."""

import asyncio
import os
import time

import numpy as np
import pytest
import sheaf
from conftest import wait_until
from sheaf.cluster_utils import Cluster

MIB = 1 << 20
STORE = 64 * MIB
WAIT_S = 120
# Where each call that is let in only as nothing else goes on costs ten, and there are more than
# three.
PATIENCE_S = 35


def array(number, mib=8):
    return np.full(mib * MIB // 8, number, dtype=np.float64)


@pytest.fixture(scope="module")
def small_store():
    """Eight calls at once would hold all of it."""
    sheaf.shutdown()
    sheaf.init(num_cpus=8, object_store_memory=STORE, log_to_driver=False)
    yield
    sheaf.shutdown()


@sheaf.remote
def make(number, mib=8):
    return array(number, mib)


@sheaf.remote
def put_and_get(values, mib):
    (value,) = sheaf.get([sheaf.put(array(values[0] + 1, mib))])
    return float(value[-1])


@sheaf.remote
def grow(values, mib):
    time.sleep(0.05)  # The others have their arguments by then.
    return array(values[0] + 1, mib)


def one_by_one(refs):
    """Their numbers; no value is held while another is got."""
    return [float(np.ravel(sheaf.get(refs.pop(0), timeout=WAIT_S))[-1]) for _ in range(len(refs))]


@pytest.mark.parametrize("by_tasks", [False, True])
@pytest.mark.parametrize(
    "call,mib", [(put_and_get, 4), (put_and_get, 8), (grow, 4), (grow, 8), (grow, 16)]
)
def test_tasks_with_more_arguments_than_the_store_holds_also_put_and_return(
    small_store, call, mib, by_tasks
):
    given = [make.remote(i) if by_tasks else sheaf.put(array(i)) for i in range(16)]
    assert one_by_one([call.remote(ref, mib) for ref in given]) == [i + 1 for i in range(16)]


def test_one_argument_of_all_calls_counts_once(small_store):
    shared = sheaf.put(array(7, 40))
    meeting = Meeting.options(num_cpus=0, max_concurrency=8).remote(8)
    # Else the sixth would be let in after more than this time.
    assert (
        sheaf.get([meet.remote(shared, meeting) for _ in range(8)], timeout=PATIENCE_S) == [7.0] * 8
    )


@sheaf.remote
class Meeting:
    """Returns when so many have come."""

    def __init__(self, size):
        self.missing = size

    async def come(self):
        self.missing -= 1
        while self.missing > 0:
            await asyncio.sleep(0.01)


@sheaf.remote
def meet(values, meeting):
    sheaf.get(meeting.come.remote())
    return float(values[0])


def test_a_call_alone_may_hold_nearly_all(small_store):
    large = [sheaf.put(array(i, 58)) for i in range(3)]
    assert one_by_one([grow.remote(ref, 1) for ref in large]) == [1, 2, 3]


def test_a_call_that_waits_for_others_leaves_them_room(small_store):
    @sheaf.remote
    def parent(values, child):
        return float(values[0]) + sheaf.get(last.remote(child[0]))

    @sheaf.remote
    def last(values):
        return float(values[-1])

    pairs = [(sheaf.put(array(i, 28)), sheaf.put(array(10 * i, 24))) for i in range(5)]
    assert sheaf.get([parent.remote(own, [child]) for own, child in pairs], timeout=PATIENCE_S) == [
        0,
        11,
        22,
        33,
        44,
    ]


def test_a_call_gets_its_own_argument_without_room(small_store):
    @sheaf.remote
    def again(values, refs):
        return float(sheaf.get(refs[0], timeout=10)[0] + values[0])

    given = [sheaf.put(array(i, 40)) for i in range(3)]
    assert [sheaf.get(again.remote(ref, [ref]), timeout=WAIT_S) for ref in given] == [0, 2, 4]


class Work:
    def grow(self, values, mib):
        return array(values[0] + 1, mib)

    async def grow_async(self, values, mib):
        await asyncio.sleep(0.02)
        other = await sheaf.put(array(values[0] + 1, mib))
        return float(other[0])


@pytest.mark.parametrize("mib", [4, 8])
def test_calls_of_actors(small_store, mib):
    given = [sheaf.put(array(i)) for i in range(16)]
    actors = [sheaf.remote(Work).options(num_cpus=0.5).remote() for _ in range(8)]
    assert one_by_one([actors[i % 8].grow.remote(ref, mib) for i, ref in enumerate(given)]) == [
        i + 1 for i in range(16)
    ]


@pytest.mark.parametrize("method", ["grow", "grow_async"])
def test_calls_of_one_actor_that_runs_many_at_once(small_store, method):
    class Threaded:
        grow = Work.grow

    given = [sheaf.put(array(i)) for i in range(16)]
    actor = (
        sheaf.remote(Work if method == "grow_async" else Threaded)
        .options(max_concurrency=16)
        .remote()
    )
    assert one_by_one([getattr(actor, method).remote(ref, 4) for ref in given]) == [
        i + 1 for i in range(16)
    ]


def test_coroutines_that_await_others_leave_them_room(small_store):
    @sheaf.remote
    class Caller:
        async def call(self, values, refs):
            return float((await grow.remote(refs[0], 1))[0] + values[0])

    given = [(sheaf.put(array(i, 28)), sheaf.put(array(i, 24))) for i in range(5)]
    caller = Caller.remote()
    assert sheaf.get(
        [caller.call.remote(own, [other]) for own, other in given], timeout=PATIENCE_S
    ) == [1, 3, 5, 7, 9]


def test_what_waits_for_room_can_be_cancelled_and_a_death_makes_room(small_store, tmp_path):
    @sheaf.remote(max_retries=0)
    def hold(values, path):
        with open(path + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + ".new", path)
        time.sleep(WAIT_S)

    held = hold.remote(sheaf.put(array(1, 40)), str(tmp_path / "pid"))
    wait_until(lambda: (tmp_path / "pid").exists(), seconds=WAIT_S)
    waiting = [grow.remote(sheaf.put(array(i, 16)), 1) for i in range(3)]
    sheaf.cancel(waiting[0])
    with pytest.raises(sheaf.exceptions.TaskCancelledError):
        sheaf.get(waiting[0], timeout=WAIT_S)
    os.kill(int((tmp_path / "pid").read_text()), 9)
    assert one_by_one(waiting[1:]) == [2, 3]
    with pytest.raises(sheaf.exceptions.WorkerCrashedError):
        sheaf.get(held, timeout=WAIT_S)


@sheaf.remote(num_cpus=0, concurrency_groups={"other": 1})
class Gate:
    """Its first call holds its argument until it is opened."""

    def __init__(self):
        self.began = asyncio.Event()
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()
        self.lifted = asyncio.Event()
        self.calls = []

    async def hold(self, values):
        self.began.set()
        await self.opened.wait()
        return float(values[0])

    async def has_begun(self):
        await self.began.wait()

    async def open(self):
        self.opened.set()

    async def pass_barrier(self):
        self.reached.set()
        await self.lifted.wait()

    async def barrier_is_reached(self):
        await self.reached.wait()

    async def lift_barrier(self):
        self.lifted.set()

    async def take(self, values):
        self.calls.append("take")
        return float(values[0])

    @sheaf.method(concurrency_group="other")
    async def take_beside(self, values):
        self.calls.append("take_beside")
        return list(self.calls)

    @sheaf.method(concurrency_group="other")
    async def answer(self):
        return True


def closed_gate(mib):
    gate = Gate.options(max_concurrency=10).remote()
    held = gate.hold.remote(sheaf.put(array(7, mib)))
    sheaf.get(gate.has_begun.remote(), timeout=WAIT_S)
    return gate, held


def test_a_coroutine_that_waits_for_room_is_cancelled_as_others_are(small_store):
    gate, held = closed_gate(40)
    other = Gate.remote()
    waiting = other.take.remote(sheaf.put(array(1, 16)))
    assert sheaf.get(
        other.answer.remote(), timeout=WAIT_S
    )  # So the call before it has been taken, and waits.
    sheaf.cancel(waiting)
    with pytest.raises(sheaf.exceptions.TaskCancelledError):
        sheaf.get(waiting, timeout=WAIT_S)
    sheaf.get(gate.open.remote(), timeout=WAIT_S)
    assert sheaf.get(held, timeout=WAIT_S) == 7


def test_a_coroutine_that_waits_for_room_keeps_none_of_another_group_waiting(small_store):
    @sheaf.remote
    def parent(values, gate, other):
        sheaf.get(gate.pass_barrier.remote())
        return sheaf.get(other.take_beside.remote(array(3, 4)))

    gate, held = closed_gate(40)
    other = Gate.remote()
    calls = parent.remote(sheaf.put(array(1, 4)), gate, other)
    sheaf.get(gate.barrier_is_reached.remote(), timeout=WAIT_S)
    waiting = other.take.remote(
        sheaf.put(array(2, 16))
    )  # There is no room for it beside those two.
    assert sheaf.get(other.answer.remote(), timeout=WAIT_S)
    sheaf.get(gate.lift_barrier.remote(), timeout=WAIT_S)
    assert sheaf.get(calls, timeout=WAIT_S) == ["take_beside"]
    sheaf.get(gate.open.remote(), timeout=WAIT_S)
    assert sheaf.get([held, waiting], timeout=WAIT_S) == [7, 2]


def test_arguments_that_lie_on_another_node():
    sheaf.shutdown()
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "resources": {"head": 1}, "object_store_memory": 4 * STORE},
    )
    try:
        cluster.add_node(num_cpus=8, resources={"b": 8}, object_store_memory=STORE)
        cluster.connect()
        cluster.wait_for_nodes()
        for call, mib in ((put_and_get, 8), (grow, 8), (grow, 16)):
            given = [sheaf.put(array(i)) for i in range(16)]
            assert one_by_one(
                [call.options(resources={"b": 1}).remote(ref, mib) for ref in given]
            ) == [i + 1 for i in range(16)]
        # Those that are given ahead of an actor's turn, too.
        actor = sheaf.remote(Work).options(resources={"b": 1}).remote()
        given = [sheaf.put(array(i)) for i in range(16)]
        assert one_by_one([actor.grow.remote(ref, 16) for ref in given]) == [
            i + 1 for i in range(16)
        ]
    finally:
        sheaf.shutdown()
        cluster.shutdown()
