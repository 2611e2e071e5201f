# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Streaming generators."""

import asyncio
import os
import signal
import time

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote(num_cpus=0)
def stream(n, pause=0.0):
    for i in range(n):
        time.sleep(pause)
        yield i


def test_items_come_while_the_generator_runs(tmp_path):
    @sheaf.remote(num_cpus=0)
    def in_two_parts(go_on):
        yield "first"
        while not go_on.exists():
            time.sleep(0.01)
        yield "second"

    items = in_two_parts.remote(tmp_path / "go on")
    assert sheaf.get(next(items), timeout=WAIT_S) == "first"
    (tmp_path / "go on").touch()
    assert sheaf.get(next(items), timeout=WAIT_S) == "second"


def test_many_items_and_none():
    assert sum(sheaf.get(ref) for ref in stream.remote(2000)) == sum(range(2000))
    assert list(stream.remote(0)) == []


def test_large_items_and_references_stream():
    @sheaf.remote(num_cpus=0)
    def blocks():
        for i in range(3):
            yield np.full(50_000, i)
        yield [sheaf.put("inner")]

    *arrays, last = [sheaf.get(ref) for ref in blocks.remote()]
    assert [int(a[0]) for a in arrays] == [0, 1, 2] and sheaf.get(last[0]) == "inner"


@pytest.mark.parametrize("attempt", range(4))
def test_the_stream_of_a_generator_that_is_cancelled_ends_in_an_error(attempt):
    """Its consumer must not take what it has for the whole."""

    @sheaf.remote(num_cpus=0)
    def endless():
        while True:
            yield "item"

    items = endless.remote()
    sheaf.get(next(items), timeout=WAIT_S)
    sheaf.cancel(items)
    with pytest.raises(sheaf.exceptions.TaskCancelledError):
        for item in items:
            sheaf.get(item, timeout=WAIT_S)


def test_an_error_is_the_last_item():
    @sheaf.remote(num_cpus=0)
    def half():
        yield 1
        raise KeyError("half way")

    first, second = half.remote()
    assert sheaf.get(first) == 1
    with pytest.raises(KeyError):
        sheaf.get(second)


def test_a_slow_consumer_holds_the_generator_back(tmp_path):
    path = tmp_path / "made"

    @sheaf.remote(num_cpus=0, _generator_backpressure_num_objects=2)
    def counted():
        for i in range(10):
            with open(path, "a") as file:
                file.write("x")
            yield i

    items = counted.remote()
    assert sheaf.get(next(items)) == 0
    time.sleep(0.3)
    assert len(path.read_text()) <= 5
    assert [sheaf.get(ref) for ref in items] == list(range(1, 10))


def test_a_slow_consumer_holds_the_generator_back_by_bytes(tmp_path):
    path = tmp_path / "made"

    @sheaf.remote(num_cpus=0, _generator_backpressure_bytes=1_000_000)
    def counted():
        for size in [100] * 50 + [400_000] * 10:  # Inside the call's answers, and in the store.
            with open(path, "a") as file:
                file.write("x")
            yield bytes(size)

    items = counted.remote()
    deadline = time.monotonic() + 60
    while len(path.read_text() if path.exists() else "") < 53 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert len(path.read_text()) == 53  # The bound, and the item that goes beyond it.
    assert [len(sheaf.get(ref)) for ref in items] == [100] * 50 + [400_000] * 10


def test_a_method_streams_on_request():
    @sheaf.remote(num_cpus=0)
    class Source:
        def lines(self, n):
            yield from (f"line {i}" for i in range(n))

    source = Source.remote()
    assert [sheaf.get(r) for r in source.lines.remote(2)] == ["line 0", "line 1"]
    assert [sheaf.get(r) for r in source.lines.options(num_returns="streaming").remote(1)] == [
        "line 0"
    ]


def test_async_iteration():
    async def collect():
        return [await ref async for ref in stream.remote(4)]

    assert asyncio.run(asyncio.wait_for(collect(), WAIT_S)) == [0, 1, 2, 3]


@pytest.mark.parametrize("wrapped", [lambda items: items, lambda items: [items]])
def test_a_generator_stays_in_its_process_and_says_so(wrapped):
    items = stream.remote(1)
    with pytest.raises(TypeError, match="stays in the process that made the call"):
        sheaf.put(wrapped(items))
    assert sheaf.get(next(items), timeout=WAIT_S) == 0


def test_wait_takes_generators_and_keeps_its_timeout(tmp_path):
    @sheaf.remote(num_cpus=0)
    def held(go_on):
        while not go_on.exists():
            time.sleep(0.005)
        yield "item"

    items, ready = held.remote(tmp_path / "go on"), sheaf.put(1)
    assert not items.next_ready()
    assert sheaf.wait([items], timeout=0.05) == ([], [items])
    assert sheaf.wait([items, ready], timeout=WAIT_S) == ([ready], [items])
    (tmp_path / "go on").touch()
    assert sheaf.wait([items, ready], num_returns=2, timeout=WAIT_S) == ([items, ready], [])
    assert items.next_ready() and sheaf.get(next(items)) == "item"
    assert sheaf.wait([items], timeout=WAIT_S) == ([items], [])  # Its end is there.
    assert next(items, None) is None
    assert sheaf.get(items.completed(), timeout=WAIT_S) is None


def test_a_dynamic_number_of_results_is_one_reference_to_all():
    refs = sheaf.get(stream.options(num_returns="dynamic").remote(3), timeout=WAIT_S)
    assert len(refs) == 3 and sheaf.get(list(refs), timeout=WAIT_S) == [0, 1, 2]


def dies_once(path, n, at, again=None):
    """Yields n items, the larger ones into the store; ends its process before item `at`. With
    `again` it yields so many the next time."""
    first = not path.exists()
    with open(path, "a") as file:
        file.write("x")
    for i in range(n if first or again is None else again):
        if first and i == at:
            os.kill(os.getpid(), signal.SIGKILL)
        yield np.full(50_000, i) if i % 2 else i


def values(refs):
    return [int(np.max(sheaf.get(ref, timeout=WAIT_S))) for ref in refs]


@pytest.mark.parametrize("options", [{}, {"_generator_backpressure_num_objects": 2}])
def test_a_generator_goes_on_behind_what_came_when_its_worker_dies(tmp_path, options):
    run = sheaf.remote(num_cpus=0, max_retries=1, **options)(dies_once)
    items = run.remote(tmp_path / "runs", 8, 5)
    kept = [next(items) for _ in range(3)]
    rest = list(items)
    assert values(kept + rest) == list(range(8))
    assert (tmp_path / "runs").read_text() == "xx"


def test_without_retries_its_death_is_the_last_item(tmp_path):
    run = sheaf.remote(num_cpus=0, max_retries=0)(dies_once)
    *items, last = run.remote(tmp_path / "runs", 8, 5)
    assert values(items) == list(range(5))
    with pytest.raises(sheaf.exceptions.WorkerCrashedError):
        sheaf.get(last)


def test_a_generator_that_yields_fewer_items_when_it_runs_again_ends_in_an_error(tmp_path):
    run = sheaf.remote(num_cpus=0, max_retries=1)(dies_once)
    *items, last = run.remote(tmp_path / "runs", 8, 5, again=3)
    assert values(items) == list(range(5))
    with pytest.raises(
        sheaf.exceptions.StreamingGeneratorReplayInconsistentError,
        match="yielded 3 items when it ran again, after 5",
    ):
        sheaf.get(last)


def test_exceptions_that_are_retried_are_no_items(tmp_path):
    @sheaf.remote(num_cpus=0, max_retries=2, retry_exceptions=[OSError])
    def flaky():
        for i in range(4):
            yield i
            mark = tmp_path / str(i)
            if i % 2 and not mark.exists():
                mark.touch()
                raise OSError("not yet")

    assert values(flaky.remote()) == [0, 1, 2, 3]


def test_a_method_goes_on_in_the_next_process_of_its_actor(tmp_path):
    @sheaf.remote(num_cpus=0, max_restarts=1, max_task_retries=1)
    class Source:
        def items(self, path):
            yield from dies_once(path, 6, 3)

    assert values(Source.remote().items.remote(tmp_path / "runs")) == list(range(6))
