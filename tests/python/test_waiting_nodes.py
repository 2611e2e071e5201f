# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Waiting for values that lie on another node: what counts as ready, who fetches, and what waits
meanwhile."""

import asyncio
import os
import signal
import threading
import time

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S, stop
from sheaf.cluster_utils import Cluster


@pytest.fixture(scope="module")
def cluster():
    sheaf.shutdown()
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 64 << 20}
    )
    try:
        made.add_node(num_cpus=2, resources={"b": 2}, object_store_memory=256 << 20)
        made.connect()
        made.wait_for_nodes()
        yield made
    finally:
        sheaf.shutdown()
        made.shutdown()


@sheaf.remote(resources={"b": 0.001}, num_cpus=0)
def make(size, value=7):
    return np.full(size, value, dtype=np.uint8)


def made_there(size=1 << 20, value=7):
    """A value that is ready, and on the other node."""
    ref = make.remote(size, value)
    assert sheaf.wait([ref], timeout=WAIT_S, fetch_local=False)[0] == [ref]
    return ref


class Stopped:
    """The other node stands still: for a moment, in which nobody takes it for dead."""

    def __init__(self, cluster):
        self._pid = cluster.worker_nodes[0].os_pid

    def __enter__(self):
        stop(self._pid)
        self._timer = threading.Timer(3, self._go_on)  # Should the test stand still as well.
        self._timer.start()
        return self

    def _go_on(self):
        os.kill(self._pid, signal.SIGCONT)

    def __exit__(self, *failure):
        self._timer.cancel()
        self._go_on()


def test_what_wait_gives_is_here(cluster):
    ref = made_there()
    assert sheaf.wait([ref], timeout=WAIT_S) == ([ref], [])
    assert sheaf.get(ref, timeout=0)[0] == 7
    refs = [make.remote(1 << 20, value) for value in range(20)]
    left = refs
    while left:
        ready, left = sheaf.wait(left, timeout=WAIT_S)
        assert ready and sheaf.get(ready[0], timeout=0)[0] == refs.index(ready[0])


def test_wait_fetches_and_only_if_it_shall(cluster):
    ref = made_there()
    with Stopped(cluster):
        assert sheaf.wait([ref], timeout=0.2) == ([], [ref])
        assert sheaf.wait([ref], timeout=0.2, fetch_local=False) == ([ref], [])
        with pytest.raises(sheaf.exceptions.GetTimeoutError):
            sheaf.get(ref, timeout=0)
    assert sheaf.wait([ref], timeout=WAIT_S) == ([ref], [])


def test_wait_for_more_than_the_store_holds_ends(cluster):
    refs = [make.remote(8 << 20) for _ in range(16)]
    assert sheaf.wait(refs, num_returns=16, timeout=WAIT_S)[1] == []


def test_await_blocks_no_loop_while_a_value_travels(cluster):
    ref = made_there()

    async def program():
        waits = asyncio.ensure_future(through(ref))
        with Stopped(cluster):
            begin = time.monotonic()
            for _ in range(10):
                await asyncio.sleep(0.02)
            assert time.monotonic() - begin < 4  # At 5 s the stopped node is dead.
            assert not waits.done()
        return await asyncio.wait_for(waits, WAIT_S)

    async def through(ref):
        return (await ref)[0]

    assert asyncio.run(program()) == 7


def test_await_gives_values_errors_and_many_at_once(cluster):
    @sheaf.remote(resources={"b": 0.001}, num_cpus=0)
    def fail():
        raise TimeoutError("of the user")

    async def program():
        with pytest.raises(TimeoutError, match="of the user"):
            await fail.remote()
        values = await asyncio.gather(*[make.remote(100_000, value) for value in range(50)])
        assert [value[0] for value in values] == list(range(50))
        cancelled = asyncio.ensure_future(asyncio.wait_for(make.remote(100_000), 0))
        with pytest.raises(asyncio.TimeoutError):
            await cancelled
        return int((await make.remote(100_000, 3))[0])

    assert asyncio.run(program()) == 3
    assert asyncio.run(program()) == 3  # Another loop.


def test_a_future_of_a_value_elsewhere_ends_while_another_thread_waits(cluster):
    future = make.remote(1 << 20).future()
    nap = sheaf.remote(num_cpus=0)(time.sleep).remote(1.5)
    sheaf.get(nap, timeout=WAIT_S)
    assert future.result(timeout=WAIT_S)[0] == 7


def test_a_get_of_more_than_the_store_holds_is_an_error_that_says_so(cluster):
    refs = [make.remote(9 << 20) for _ in range(8)]
    with pytest.raises(sheaf.exceptions.ObjectStoreFullError):
        sheaf.get(refs, timeout=4 * WAIT_S)
    del refs
    assert sheaf.get(make.remote(8 << 20), timeout=WAIT_S)[0] == 7


def test_a_task_reads_its_own_argument_without_room_for_another(cluster):
    @sheaf.remote(num_cpus=1)
    def read(array, inside):
        return int(array[0]) + int(sheaf.get(inside[0], timeout=WAIT_S)[0])

    ref = made_there(40 << 20)  # Most of the store of the node that reads it.
    assert sheaf.get(read.remote(ref, [ref]), timeout=2 * WAIT_S) == 14
