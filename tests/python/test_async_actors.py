# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Actors with async methods."""

import asyncio

import pytest
import sheaf

from conftest import WAIT_S

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote(num_cpus=0)
class Gate:
    def __init__(self):
        self.event = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    async def wait(self):
        await self.event.wait()
        return "open"

    async def open(self):
        self.event.set()

    def plain(self):
        return asyncio.get_running_loop() is self.loop

    async def fail(self):
        raise KeyError("async")

    async def through(self, ref):
        return await ref[0]

    async def items(self, n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def who(self):
        return sheaf.get_runtime_context().get_task_name()


def test_a_hundred_calls_wait_for_one():
    gate = Gate.remote()
    waiting = [gate.wait.remote() for _ in range(100)]
    assert sheaf.wait(waiting, timeout=0.05)[0] == []
    sheaf.get(gate.open.remote(), timeout=WAIT_S)
    assert sheaf.get(waiting, timeout=WAIT_S) == ["open"] * 100


def test_plain_methods_run_on_the_loop():
    assert sheaf.get(Gate.remote().plain.remote(), timeout=WAIT_S)


def test_errors_references_and_context():
    gate = Gate.remote()
    with pytest.raises(KeyError):
        sheaf.get(gate.fail.remote(), timeout=WAIT_S)
    assert sheaf.get(gate.through.remote([sheaf.put(3)]), timeout=WAIT_S) == 3
    assert sheaf.get(gate.who.remote(), timeout=WAIT_S) == "Gate.who"


def test_an_async_generator_streams():
    items = Gate.remote().items.remote(5)
    assert [sheaf.get(ref) for ref in items] == list(range(5))


def test_a_waiting_call_is_cancelled():
    gate = Gate.remote()
    ref = gate.wait.remote()
    sheaf.get(gate.plain.remote())
    sheaf.cancel(ref)
    with pytest.raises(sheaf.exceptions.TaskCancelledError):
        sheaf.get(ref, timeout=WAIT_S)
    assert sheaf.get(gate.plain.remote(), timeout=WAIT_S)
