# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Extreme steps of monkey.py's programs: sizes around every limit, counts of 10^5, depth of 10^5,
peers that stand still.

Each is legal. It must work, or end in a typed error that a user can act on; the process and the
node live on in any case.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from monkey_remote import Cell, Custom, blob, digest, ray
from monkey_world import WAIT_S, Blob, Plain, Raises, World, Wrong, own_mib, status

EXTREMES: dict[str, Callable[[World], None]] = {}

# What a thing that is too large may be refused with; the text must say the size or the limit.
_REFUSALS = (
    ValueError,
    ray.exceptions.ObjectStoreFullError,
    ray.exceptions.PendingCallsLimitExceeded,
    ray.exceptions.RayTaskError,
)


def extreme(function: Callable[[World], None]) -> Callable[[World], None]:
    EXTREMES[function.__name__] = function
    return function


def draw(world: World, name: str = "") -> None:
    name = name or world.rng.choice(list(EXTREMES))
    world.say(name)
    EXTREMES[name](world)


@contextlib.contextmanager
def _refusable(world: World, what: str) -> Iterator[None]:
    """What may be refused with words."""
    try:
        yield
    except _REFUSALS as error:
        if isinstance(error, world.tolerated):
            return
        if not any(character.isdigit() for character in str(error)):
            raise Wrong(f"{what} was refused without a size or a limit: {error}") from None
        world.say(f"  refused: {type(error).__name__}: {str(error)[:200]}")


def _around(world: World, limit: int) -> int:
    return max(
        0, int(limit * world.rng.choice([0.5, 0.98, 1, 1.02, 1.3])) + world.rng.choice([-1, 0, 1])
    )


@extreme
def nested_references(world: World) -> None:
    """A linked list of references, freed at its head."""
    depth = world.rng.choice([10_000, 50_000, 100_000])
    world.say(f"  depth {depth}")
    ref = ray.put(0)
    for _ in range(depth):
        ref = ray.put([ref])
    first = ray.get(ref, timeout=WAIT_S)
    del ref
    longest = 0.0
    del first
    for _ in range(20):  # Calls go on beside it.
        began = time.monotonic()
        if ray.get(world.remote("same").remote(3), timeout=WAIT_S) != 3:
            raise Wrong("a call beside the freeing")
        longest = max(longest, time.monotonic() - began)
    world.say(f"  longest call {longest:.3f} s")


@extreme
def long_lineage(world: World) -> None:
    """x = step.remote(x): only the last one is anybody's, so the store never fills."""
    size = 1 << 20
    count = 2 * world.store_bytes // size + 20
    before = status()["store"]
    want = Blob(world.key(), size, "array")
    ref = ray.put(want.value())
    value = want.value()
    most = 0
    for i in range(count):
        ref = world.remote("step").remote(ref, 1)
        value = value + value.dtype.type(1)
        if i % 50 == 49:
            ray.wait([ref], timeout=WAIT_S)
            most = max(most, status()["store"]["objects"])
    world.add(world.remote("digest_all").remote(ref), Plain(digest([value])))
    world.look(world.items[-1])
    after = status()["store"]
    if (
        world.nodes == 1
        and not world.tolerated
        and (after["spilled_bytes"] > before["spilled_bytes"] or most > before["objects"] + 100)
    ):
        raise Wrong(
            f"{count} steps of 1 MiB, of which one is alive: {most} objects, "
            f"{after['spilled_bytes']} bytes on disk"
        )


@extreme
def many_arguments(world: World) -> None:
    """References to small values whose sum is large."""
    size = world.rng.choice([40, 1000, 62_000, (64 << 10) - 100])
    count = min(100_000, _around(world, 64 << 20) // size)
    if size == 40:
        count = world.rng.choice([1000, 10_000, 50_000])
    world.say(f"  {count} of {size}")
    key = world.key(10)
    refs = [ray.put(blob(key + i, size, "bytes")) for i in range(10)]
    chosen = [refs[i % 10] for i in range(count)]
    want = digest([blob(key + i % 10, size, "bytes") for i in range(count)])
    with _refusable(world, "arguments"):
        got = ray.get(world.remote("digest_all").remote(*chosen), timeout=WAIT_S)
        if got != want:
            raise Wrong(f"{count} arguments of {size} bytes: another digest")


@extreme
def many_results(world: World) -> None:
    size = world.rng.choice([40, 62_000])
    count = min(3000, _around(world, 64 << 20) // size)
    world.say(f"  {count} of {size}")
    key = world.key(count)
    with _refusable(world, "results"):
        refs = world.remote("make_many", num_returns=count).remote(count, key, size, "bytes")
        for i, got in enumerate(ray.get(refs, timeout=WAIT_S)):
            Blob(key + i, size, "bytes").check(got)


@extreme
def large_closure(world: World) -> None:
    """A function that holds much."""
    size = _around(world, world.rng.choice([24 << 10, 64 << 10, 1 << 20, 64 << 20]))
    world.say(f"  {size} bytes")
    want = Blob(world.key(), size, "array")
    held = want.value()

    @ray.remote(num_cpus=0.1)
    def look(add):
        return digest(held) + add

    with _refusable(world, "the function"):
        got = ray.get([look.remote(1), look.remote(2)], timeout=WAIT_S)
        if got != [digest(held) + 1, digest(held) + 2]:
            raise Wrong("a function with much in it: another digest")


@extreme
def large_exception(world: World) -> None:
    size = _around(world, world.rng.choice([64 << 10, 1 << 20, 8 << 20, 64 << 20]))
    world.say(f"  {size} bytes")
    key = world.key()
    try:
        ray.get(world.remote("fail").remote(key, size), timeout=WAIT_S)
        raise Wrong("no exception came")
    except Custom as error:
        if error.key != key:
            raise Wrong(f"the exception of another call: {error.key}") from None
    except ray.exceptions.RayTaskError as error:  # Cut, but with its words.
        if "Custom" not in str(error):
            raise Wrong(
                f"an exception of {size} bytes came as {type(error).__name__}: {str(error)[:300]}"
            ) from None
    except world.tolerated:
        pass


@extreme
def large_values(world: World) -> None:
    """More than the store holds, a part of it at a time; and one that cannot fit."""
    part = int(world.store_bytes * world.rng.choice([0.1, 0.25, 0.5]))
    items = []
    for _ in range(2 * world.store_bytes // part):
        want = Blob(world.key(), part, "bytes")
        items.append(world.add(ray.put(want.value()), want))
    for item in items:
        world.look(item)
    world.drop(items)
    items.clear()
    with _refusable(world, "a value of twice the store"):
        ray.get(ray.put(blob(1, 2 * world.store_bytes, "bytes")), timeout=WAIT_S)


@extreme
def many_small_values(world: World) -> None:
    """Values that live in the process have a budget too, those below 1 KiB excepted."""
    size = world.rng.choice([1000, 60_000])
    count = 2 * world.store_bytes // size
    world.say(f"  {count} of {size}")
    key = world.key()
    before = own_mib()
    refs = [ray.put(blob(key + i % 100, size, "bytes")) for i in range(count)]
    grown = own_mib() - before
    for i in world.rng.sample(range(count), 100):
        Blob(key + i % 100, size, "bytes").check(ray.get(refs[i], timeout=WAIT_S))
    budget = world.store_bytes if size >= 1024 else count * (size + 400)
    if grown > budget / (1 << 20) + 100:
        raise Wrong(
            f"{count} values of {size} bytes: this process grew by {grown:.0f} MiB, "
            f"the store has {world.store_bytes >> 20}"
        )


@extreme
def callbacks_that_wait(world: World) -> None:
    """A callback gets what is not there yet, while the main thread waits for something else."""
    first = world.remote("nap").remote(0.05, 1)
    second = world.remote("nap").remote(0.4, 2)
    third = world.remote("nap").remote(0.2, 3)
    got: list[Any] = []
    done = threading.Event()

    def called(future: Any) -> None:
        try:
            got.append(ray.get(second, timeout=WAIT_S))
            got.append(ray.get(world.remote("same").remote(future.result()), timeout=WAIT_S))
        except Exception as error:  # noqa: BLE001
            got.append(error)
        done.set()

    began = time.monotonic()
    first.future().add_done_callback(called)
    world.look(world.add(third, Plain(3)))
    took = time.monotonic() - began
    if not done.wait(20):
        raise Wrong(
            "a callback that gets what another task makes in 0.4 s: nothing within "
            f"20 s; the main thread's get took {took:.1f} s"
        )
    if got != [2, 1] and not world.tolerated:
        raise Wrong(f"in a callback: {got}")


@extreme
def far_values(world: World) -> None:
    """Many that another process made, got at once, waited for, awaited, and by futures."""
    count, size = world.rng.choice([(60, 100_000), (1000, 1000), (200, 70_000)])
    key = world.key(count)
    refs = [
        world.remote("make").options(scheduling_strategy="SPREAD").remote(key + i, size, "bytes")
        for i in range(count)
    ]
    with contextlib.suppress(*world.tolerated):
        for i, got in enumerate(ray.get(refs, timeout=WAIT_S)):
            Blob(key + i, size, "bytes").check(got)
    futures = [ref.future() for ref in refs[:50]]
    for i, future in enumerate(futures):
        with contextlib.suppress(*world.tolerated):
            Blob(key + i, size, "bytes").check(future.result(WAIT_S))


@extreme
def wait_on_many(world: World) -> None:
    count = world.rng.choice([1000, 10_000, 100_000])
    world.say(f"  {count}")
    refs = [ray.put(i) for i in range(count)]
    late = world.remote("nap").remote(0.1, "late")
    ready, rest = ray.wait([late, *refs], num_returns=count + 1, timeout=WAIT_S)
    if len(ready) != count + 1 or rest:
        raise Wrong(f"wait for {count} values: {len(ready)} ready")
    if ray.get(ready[1:1000], timeout=WAIT_S) != list(range(min(999, count))):
        raise Wrong("wait gave other references")


@extreme
def many_calls(world: World) -> None:
    """Queued far beyond what runs; looked at while they are."""
    count = world.rng.choice([10_000, 50_000])
    world.say(f"  {count}")
    sleeper = world.remote("nap").remote(1, 0)
    refs = [world.remote("same").remote(i) for i in range(count)]
    from importlib import import_module

    state = import_module(f"{ray.__name__}.util.state")
    rows = state.list_tasks(limit=world.rng.choice([100, 10_000]))
    if len(rows) == 0:
        raise Wrong("no task is listed while many are queued")
    with contextlib.suppress(*world.tolerated):
        if ray.get(refs, timeout=WAIT_S) != list(range(count)):
            raise Wrong("calls gave other values")
        ray.get(sleeper, timeout=WAIT_S)


@extreme
def many_names(world: World) -> None:
    """Each call with options of its own."""
    count = world.rng.choice([1000, 5000])
    key = world.key()
    refs = [world.remote("same", name=f"monkey-{key}-{i}").remote(i) for i in range(count)]
    with contextlib.suppress(*world.tolerated):
        if ray.get(refs, timeout=WAIT_S) != list(range(count)):
            raise Wrong("calls gave other values")


@extreme
def stopped_actor(world: World) -> None:
    """Calls to an actor that stands still: the caller's memory has a bound, and all calls end well
    when it goes on."""
    actor = ray.remote(Cell).options(num_cpus=0).remote(0, b"")
    try:
        pid = ray.get(actor.pid.remote(), timeout=WAIT_S)
    except world.tolerated:
        return
    size = world.rng.choice([10, 5000, 50_000])
    count = min(20_000, (256 << 20) // max(size, 1))
    world.say(f"  {count} of {size}")
    before, grown = own_mib(), 0.0

    def go_on() -> None:
        nonlocal grown
        grown = own_mib() - before  # Later the results count, which are this program's.
        os.kill(pid, signal.SIGCONT)

    os.kill(pid, signal.SIGSTOP)
    resume = threading.Timer(3, go_on)
    resume.start()
    try:
        payload = blob(5, size, "bytes")
        refs = [actor.same.remote(payload) for _ in range(count)]
        with contextlib.suppress(*world.tolerated):
            for got in ray.get(refs, timeout=WAIT_S):
                if got != payload:
                    raise Wrong("a call to an actor that stood still gave another value")
    finally:
        resume.join()
    if grown > 64 + 40 + count * 2000 / (1 << 20):
        raise Wrong(
            f"{count} calls of {size} bytes to an actor that stood still: this "
            f"process grew by {grown:.0f} MiB"
        )


@extreme
def pending_actor(world: World) -> None:
    """Calls to an actor that never starts; then it is killed."""
    actor = ray.remote(Cell).options(resources={"nowhere": 1}).remote(0, b"")
    payload = blob(6, 50_000, "bytes")
    before = own_mib()
    refs: list[Any] = []
    over = threading.Event()

    def submit() -> None:
        try:
            for _ in range(4000):
                refs.append(actor.same.remote(payload))
        except ray.exceptions.RayError:
            pass
        over.set()

    thread = threading.Thread(target=submit)
    thread.start()
    over.wait(3)
    grown = own_mib() - before
    ray.kill(actor)
    thread.join(WAIT_S)
    if thread.is_alive():
        raise Wrong("a caller of an actor that was killed before it started waits on")
    for ref in refs[:: max(1, len(refs) // 50)]:
        try:
            ray.get(ref, timeout=WAIT_S)
            raise Wrong("an actor that never started answered")
        except (ray.exceptions.RayActorError, *world.tolerated):
            pass
    if grown > 164:
        raise Wrong(f"calls to an actor that never starts: this process grew by {grown:.0f} MiB")


@extreme
def deep_calls(world: World) -> None:
    """Tasks that wait for tasks, deeper than there are CPUs."""
    depth = world.rng.choice([5, 20, 40])
    with contextlib.suppress(*world.tolerated):
        got = ray.get(world.remote("descend").remote(depth), timeout=WAIT_S)
        if got != depth:
            raise Wrong(f"want {depth}, got {got}")


@extreme
def many_actors(world: World) -> None:
    count = world.rng.choice([20, 60])
    kind = ray.remote(Cell).options(num_cpus=0)
    actors = [kind.remote(i) for i in range(count)]
    with contextlib.suppress(*world.tolerated):
        for _ in range(3):
            ray.get([actor.add.remote(1) for actor in actors], timeout=WAIT_S)
        if ray.get([actor.add.remote(1) for actor in actors], timeout=WAIT_S) != [
            i + 4 for i in range(count)
        ]:
            raise Wrong("actors gave other numbers")


@extreme
def mutual_actors(world: World) -> None:
    """Two that call each other at once, with much in each call."""
    kind = ray.remote(Cell).options(
        num_cpus=0, max_concurrency=101
    )  # More threads than calls that wait.
    first, second = kind.remote(0), kind.remote(0)
    refs = []
    for _ in range(world.count(100)):
        refs += [first.add_to.remote(second, 1), second.add_to.remote(first, 1)]
    with contextlib.suppress(*world.tolerated):
        ray.get(refs, timeout=WAIT_S)


@extreme
def large_stream(world: World) -> None:
    """Items faster than they are read, more than the store holds."""
    size = 1 << 20
    count = int(1.2 * world.store_bytes) // size
    key = world.key(count)
    stream = world.remote("items", num_returns="streaming").remote(count, key, size, -1)
    time.sleep(0.5)
    with contextlib.suppress(*world.tolerated):
        for index, ref in enumerate(stream):
            Blob(key + index, size, "bytes").check(ray.get(ref, timeout=WAIT_S))
            del ref


@extreme
def odd_options(world: World) -> None:
    """Names, environments and resources of great length."""
    size = world.rng.choice([1000, 60_000, 1 << 20])
    with _refusable(world, "a name"):
        if ray.get(world.remote("same", name="n" * size).remote(1), timeout=WAIT_S) != 1:
            raise Wrong("a call with a long name")
    with _refusable(world, "resources"):
        count = world.rng.choice([100, 10_000])
        ref = world.remote("same", resources={f"r{i}": 1 for i in range(count)}).remote(1)
        ready, _ = ray.wait([ref], timeout=0.2)
        if ready:  # With an error: no node can ever have them.
            ray.get(ready)
            raise Wrong("a task ran without its resources")
        ray.cancel(ref)


@extreme
def recursive_callbacks(world: World) -> None:
    """Each callback calls, and hangs a callback on that."""
    depth = world.rng.choice([10, 200])
    done = threading.Event()
    failures: list[BaseException] = []

    def called(left: int, future: Any) -> None:
        try:
            future.result()
            if left == 0:
                done.set()
            else:
                world.remote("same").remote(left).future().add_done_callback(
                    functools.partial(called, left - 1)
                )
        except world.tolerated:
            done.set()
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
            done.set()

    world.remote("same").remote(0).future().add_done_callback(functools.partial(called, depth))
    if not done.wait(WAIT_S):
        raise Wrong(f"a chain of {depth} callbacks does not end")
    if failures:
        raise failures[0]


@extreme
def raising_arguments(world: World) -> None:
    """One wrong among thousands of arguments."""
    key = world.key()
    refs = [ray.put(i) for i in range(world.rng.choice([10, 5000]))]
    bad = world.remote("fail").remote(key, 10)
    world.look(world.add(world.remote("digest_all").remote(*refs, bad), Raises(Custom, key)))
