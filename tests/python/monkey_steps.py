# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Ordinary steps of monkey.py's programs: each draws its arguments, calls, and says what must come.

A step leaves references in the world, which later steps pass on, wait for, compare and drop in any
order.
"""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import numpy
from monkey_remote import AsyncCell, Cell, Custom, blob, digest, ray
from monkey_world import WAIT_S, Between, Blob, Item, Plain, Raises, World, Wrong

STEPS: list[tuple[float, Callable[[World], None]]] = []
_SMALL = 256 << 10


def step(weight: float) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def register(function: Callable[[World], None]) -> Callable[[World], None]:
        STEPS.append((weight, function))
        return function

    return register


def draw(world: World) -> None:
    """Runs one step."""
    weights, functions = zip(*STEPS)
    function = world.rng.choices(functions, weights)[0]
    world.say(function.__name__)
    function(world)


@step(3)
def put(world: World) -> None:
    for _ in range(world.count(20)):
        want = world.blob(world.room(0.4))
        world.add(ray.put(want.value()), want)


@step(3)
def make(world: World) -> None:
    for _ in range(world.count(50)):
        want = world.blob(min(world.room(0.4), 8 << 20))
        world.add(world.remote("make").remote(want.key, want.size, want.form), want)


@step(2)
def make_many(world: World) -> None:
    count = world.count(100) + 1
    size = world.size(min(_SMALL, world.room(0.2) // count))
    key, form = world.key(count), world.form()
    refs = world.remote("make_many", num_returns=count).remote(count, key, size, form)
    for i, ref in enumerate([refs] if count == 1 else refs):
        want = Blob(key + i, size, form)
        world.add(ref, want) if count > 1 else world.add(ref, Plain((want.value(),), size))


@step(3)
def pass_on(world: World) -> None:
    """Values and references as arguments, by position and by name."""
    known = [item for item in world.readable() if not isinstance(item.want, Between)]
    chosen = world.rng.sample(known, min(len(known), world.count(20)))
    own = [world.blob(_SMALL) for _ in range(world.count(5))]
    values = [item.want.value() for item in chosen] + [want.value() for want in own]
    arguments = [item.ref for item in chosen] + [want.value() for want in own]
    if world.rng.random() < 0.3:
        named = {f"name_{i:05d}": argument for i, argument in enumerate(arguments)}
        ref = world.remote("digest_all").remote(**named)
    else:
        ref = world.remote("digest_all").remote(*arguments)
    world.add(ref, Plain(digest(values)), made_from=chosen)


@step(2)
def boxed(world: World) -> None:
    """References inside a value: read by a task, or put again."""
    known = [item for item in world.readable() if not isinstance(item.want, Between)]
    chosen = world.rng.sample(known, min(len(known), world.count(30)))
    box: Any = [item.ref for item in chosen]
    if world.rng.random() < 0.5:
        box = ray.put(box)
    world.add(
        world.remote("digest_inside").remote(box), Plain(world.digest(chosen)), made_from=chosen
    )


@step(2)
def inside_of_results(world: World) -> None:
    """A task puts and gives references back; its process owns them."""
    count = world.count(10)
    size = world.size(min(_SMALL, world.room(0.2) // (count + 1)))
    key = world.key(count)
    try:
        refs = ray.get(world.remote("put_inside").remote(key, size, count), timeout=WAIT_S)
    except world.tolerated:
        return
    for i, ref in enumerate(refs):
        world.add(ref, Blob(key + i, size, "bytes")).blame.append(world.worker_ended)


@step(2)
def raises(world: World) -> None:
    for _ in range(world.count(10)):
        key = world.key()
        world.add(world.remote("fail").remote(key, world.size(30 << 10)), Raises(Custom, key))


@step(2)
def trees(world: World) -> None:
    depth, width = world.rng.choice([(0, 1), (1, 8), (2, 3), (3, 2), (6, 1)])
    total = sum(width**level for level in range(depth + 1))
    world.add(world.remote("fan").remote(depth, width), Plain(total))


@step(1)
def chain_of_tasks(world: World) -> None:
    """x = step.remote(x), with what lies between dropped at once."""
    want = Blob(world.key(), world.size(min(2 << 20, world.room(0.2))), "array")
    ref = ray.put(want.value())
    count = world.count(100)
    for _ in range(count):
        ref = world.remote("step").remote(ref, 1)
    value = want.value()
    for _ in range(count):
        value = value + numpy.uint8(1)
    world.add(world.remote("digest_all").remote(ref), Plain(digest([value])))


@step(1)
def fork(world: World) -> None:
    """Of this process, and of a worker."""
    if world.rng.random() < 0.5:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    world.add(world.remote("fork_and").remote(7), Plain(7))


@step(1)
def retried(world: World) -> None:
    world.worker_ended.add(ray.exceptions.OwnerDiedError)
    mark = tempfile.mktemp(prefix="monkey-")
    item = world.add(world.remote("die_once", max_retries=3).remote(mark, 5), Plain(5))
    world.look(item)
    if os.path.exists(mark):
        os.unlink(mark)


@step(2)
def streams(world: World) -> None:
    """A generator, of which some items are taken."""
    count, size, key = world.count(100), world.size(_SMALL), world.key(100)
    fail_at = world.rng.randrange(count + 1) if world.rng.random() < 0.3 else -1
    taken = world.rng.randrange(count + 2)
    options = {"num_returns": "streaming"}
    if world.rng.random() < 0.3:
        options["_generator_backpressure_num_objects"] = world.rng.randrange(1, 10)
    stream = world.remote("items", **options).remote(count, key, size, fail_at)
    end = fail_at if 0 <= fail_at < count else count
    try:
        for index, ref in enumerate(stream):
            if index == taken:
                return
            if index < end:
                Blob(key + index, size, "bytes").check(ray.get(ref, timeout=WAIT_S))
            elif index == end < count:
                try:
                    ray.get(ref, timeout=WAIT_S)
                    raise Wrong("the generator's exception did not come")
                except Custom as error:
                    if error.key != key:
                        raise Wrong(f"the exception of another generator: {error.key}") from None
            else:
                raise Wrong(f"item {index} of {count}")
    except world.tolerated:
        world.ended += 1


class Actor:
    """An actor and what it must hold."""

    def __init__(self, world: World):
        rng = world.rng
        self.is_async = rng.random() < 0.4
        self.threads = rng.choice([1, 1, 1, 4])
        options: dict[str, Any] = {"num_cpus": rng.choice([0, 0, 0.1])}
        if self.threads > 1:
            options["max_concurrency"] = self.threads
        self.restarts = rng.choice([0, 0, 3])
        if self.restarts:
            options |= {"max_restarts": self.restarts, "max_task_retries": 3}
        self.name = ""
        if rng.random() < 0.3:
            self.name = f"monkey-{world.key()}"
            options["name"] = self.name
            if rng.random() < 0.5:
                options["lifetime"] = "detached"
        self.value = rng.randrange(100)
        self.kept: dict[str, int] = {}
        kind = ray.remote(AsyncCell if self.is_async else Cell)
        self.handle = kind.options(**options).remote(
            self.value, blob(1, world.size(64 << 10), "bytes")
        )
        self.detached = "lifetime" in options
        self.in_order = self.threads == 1
        self.blame: set[type] = set()  # What its calls may end in: all of them share it.

    def call(self, world: World, ref: Any, want: Any, *more: type) -> Item:
        item = world.add(ref, want, *more)
        item.blame.append(self.blame)
        return item

    def add(self, world: World, n: int) -> None:
        self.value += n
        exact = self.in_order and not world.tolerated
        self.call(
            world,
            self.handle.add.remote(n),
            Plain(self.value) if exact else Between(0, self.value + 10_000),
        )


@step(2)
def new_actor(world: World) -> None:
    if len(world.actors) < 6:
        world.actors.append(Actor(world))


def _an_actor(world: World) -> Actor:
    if not world.actors:
        new_actor(world)
    return world.rng.choice(world.actors)


@step(4)
def call_actor(world: World) -> None:
    actor = _an_actor(world)
    for _ in range(world.count(100)):
        actor.add(world, world.rng.randrange(5))


@step(2)
def give_to_actor(world: World) -> None:
    actor = _an_actor(world)
    want = world.blob(min(world.room(0.3), 4 << 20))
    if world.rng.random() < 0.3:
        key = world.key()
        actor.call(world, actor.handle.fail.remote(key), Raises(Custom, key))
    actor.call(world, actor.handle.same.remote(want.value()), want)


@step(2)
def actor_keeps(world: World) -> None:
    """A reference lives in an actor when the program has dropped its own."""
    actor = _an_actor(world)
    if actor.is_async:
        want = world.blob(min(world.room(0.3), _SMALL))
        actor.call(
            world,
            actor.handle.digest_of.remote([ray.put(want.value())]),
            Plain(digest(want.value())),
        )
        return
    want = world.blob(min(world.room(0.3), 1 << 20))
    name = f"kept-{world.key()}"
    ref = ray.put(want.value())
    kept = actor.handle.keep.remote(name, [ref])
    del ref
    if actor.in_order:
        actor.call(
            world,
            actor.handle.kept_digest.remote(name),
            Plain(digest([want.value()])),
            *((KeyError,) if world.tolerated else ()),
        )
    if world.rng.random() < 0.5:
        ray.wait([kept], timeout=WAIT_S)
        actor.handle.drop.remote()


@step(1)
def actor_calls_actor(world: World) -> None:
    first, second = _an_actor(world), _an_actor(world)
    if first is second or first.is_async:
        return
    second.value += 3
    ref = first.handle.add_to.remote(second.handle, 3)
    item = first.call(world, ref, Between(0, second.value + 10_000))
    item.blame.append(second.blame)
    world.look(item)  # Before the next call: only calls of one caller are in order.


@step(1)
def actor_calls_itself(world: World) -> None:
    """It waits for that where it can run both; a plain one gives the reference away."""
    actor = _an_actor(world)
    want = world.blob(min(world.room(0.2), 4 << 20))
    if actor.is_async or actor.threads > 1:
        # More of these at once than threads would wait for each other.
        item = actor.call(
            world, actor.handle.through_itself.remote(actor.handle, want.value()), want
        )
        if not actor.is_async:
            world.look(item)
        return
    try:
        [ref] = ray.get(actor.handle.later.remote(actor.handle, want.value()), timeout=WAIT_S)
    except world.tolerated:
        world.ended += 1
        return
    world.look(actor.call(world, ref, want))


@step(1)
def actor_streams(world: World) -> None:
    actor = _an_actor(world)
    count, size, key = world.count(30), world.size(_SMALL), world.key(30)
    try:
        stream = actor.handle.items.options(num_returns="streaming").remote(count, key, size)
        for index, ref in enumerate(stream):
            Blob(key + index, size, "bytes").check(ray.get(ref, timeout=WAIT_S))
    except world.tolerated:
        world.ended += 1


@step(1)
def by_name(world: World) -> None:
    named = [actor for actor in world.actors if actor.name]
    if not named:
        return
    actor = world.rng.choice(named)
    try:
        handle = ray.get_actor(actor.name)
    except ValueError:
        if not world.tolerated:
            raise
        return
    want = world.blob(1000)
    actor.call(world, handle.same.remote(want.value()), want)


@step(1)
def end_actor(world: World) -> None:
    """By kill, with calls behind it, or with the last handle."""
    if not world.actors:
        return
    actor = world.actors.pop(world.rng.randrange(len(world.actors)))
    dead = (ray.exceptions.RayActorError,)
    if actor.detached or world.rng.random() < 0.6:
        actor.blame.update(dead)  # What is still under way may end with it.
        ray.kill(actor.handle)
        after = actor.handle.add.remote(1)
        try:
            ray.get(after, timeout=WAIT_S)
            raise Wrong("a killed actor answered")
        except dead:
            pass


@step(3)
def look(world: World) -> None:
    chosen = world.rng.sample(world.items, min(len(world.items), world.count(100)))
    world.look_all(chosen)


@step(2)
def drop(world: World) -> None:
    world.drop(world.rng.sample(world.items, world.rng.randrange(len(world.items) + 1)))


@step(2)
def wait(world: World) -> None:
    """For any number of them, with and without a time limit; what is ready can be read at once."""
    chosen = world.rng.sample(world.items, min(len(world.items), world.count(200)))
    if not chosen:
        return
    number = world.rng.randrange(1, len(chosen) + 1)
    timeout = world.rng.choice([0, 0.01, WAIT_S])
    ready, rest = ray.wait(
        [item.ref for item in chosen],
        num_returns=number,
        timeout=timeout,
        fetch_local=world.rng.random() < 0.7,
    )
    if (
        len(ready) + len(rest) != len(chosen)
        or len(ready) > number
        or (timeout == WAIT_S and len(ready) != number)
    ):
        raise Wrong(
            f"wait for {number} of {len(chosen)}, {timeout} s: {len(ready)} ready, {len(rest)} not"
        )
    by_ref = {item.ref: item for item in chosen}
    world.look_all([by_ref[ref] for ref in ready[:20]])


@step(1)
def cancel(world: World) -> None:
    """Tasks that sleep or wait for a sleeper: each ends as cancelled, the others go on."""
    sleeping = [
        world.remote("nap", max_retries=0).remote(WAIT_S, i) for i in range(world.count(10) + 1)
    ]
    behind = world.remote("same").remote(sleeping[-1])
    if world.rng.random() < 0.5:
        ray.wait(sleeping, timeout=0.05)
    force = world.rng.random() < 0.3
    if force:
        world.worker_ended.add(ray.exceptions.OwnerDiedError)
    for ref in sleeping:
        ray.cancel(ref, force=force)
    for ref in [*sleeping, behind]:
        try:
            ray.get(ref, timeout=WAIT_S)
            raise Wrong("a cancelled task gave a value")
        except (ray.exceptions.TaskCancelledError, ray.exceptions.WorkerCrashedError):
            pass
        except ray.exceptions.RayTaskError as error:  # Whose argument was cancelled.
            if ref is not behind and not world.tolerated:
                raise Wrong(f"a cancelled task ended in {error}") from None
        except world.tolerated:
            world.ended += 1


@step(1)
def threads(world: World) -> None:
    """Several at once, each with calls, waits and values of its own."""
    failures: list[BaseException] = []

    def work(key: int, rounds: int) -> None:
        try:
            for i in range(rounds):
                want = Blob(key + i, 100 * i, "bytes")
                got = ray.get(
                    [world.remote("make").remote(key + i, 100 * i, "bytes"), ray.put(want.value())],
                    timeout=WAIT_S,
                )
                want.check(got[0])
                want.check(got[1])
        except world.tolerated:
            pass
        except BaseException as error:  # noqa: BLE001  Passed on below.
            failures.append(error)

    running = [
        threading.Thread(target=work, args=(world.key(50), world.count(20)))
        for _ in range(world.rng.randrange(2, 9))
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(WAIT_S)
        if thread.is_alive():
            raise Wrong(f"a thread does not end within {WAIT_S} s")
    if failures:
        raise failures[0]


@step(1)
def event_loop(world: World) -> None:
    """References that are awaited; the loop itself never stands still."""
    chosen = [item for item in world.readable() if isinstance(item.want, Blob)][:200]

    async def main() -> float:
        loop = asyncio.get_running_loop()
        longest = 0.0
        over = False

        async def tick() -> None:
            nonlocal longest
            while not over:
                began = loop.time()
                await asyncio.sleep(0.005)
                longest = max(longest, loop.time() - began)

        async def one(item: Any) -> None:
            try:
                got = await item.ref
            except Exception as error:  # noqa: BLE001
                world.explain(item, error)
            else:
                item.want.check(got)

        ticking = asyncio.ensure_future(tick())
        await asyncio.wait_for(asyncio.gather(*map(one, chosen)), WAIT_S)
        over = True
        await ticking
        return longest

    longest = asyncio.run(main())
    if longest > 10:
        raise Wrong(f"the event loop stood still for {longest:.1f} s")


@step(1)
def callbacks(world: World) -> None:
    """Futures whose callbacks use the API themselves, while this thread waits."""
    chosen = [item for item in world.readable() if isinstance(item.want, Blob)][:10]
    done = threading.Event()
    results: list[Any] = []

    def called(key: int, blame: tuple[type, ...], future: Any) -> None:
        try:
            future.result()
            results.append(
                ray.get(world.remote("make").remote(key, 100, "bytes"), timeout=WAIT_S)
                == blob(key, 100, "bytes")
            )
        except Exception as error:  # noqa: BLE001
            results.append(isinstance(error, (*world.tolerated, *blame)) or error)
        if len(results) == len(chosen) + 1:
            done.set()

    first = world.remote("nap").remote(0.05, 1)
    for ref, blame in [(first, ()), *((item.ref, item.more) for item in chosen)]:
        ref.future().add_done_callback(functools.partial(called, world.key(), blame))
    world.look(world.add(world.remote("nap").remote(0.2, 2), Plain(2)))
    if not done.wait(WAIT_S):
        raise Wrong(f"{len(results)} of {len(chosen) + 1} callbacks came within {WAIT_S} s")
    wrong = [result for result in results if result is not True]
    if wrong:
        raise Wrong(f"in a callback: {wrong[0]!r}")


@step(1)
def groups(world: World) -> None:
    """A placement group with a task in it that has a child."""
    from importlib import import_module

    util = import_module(f"{ray.__name__}.util")
    strategies = import_module(f"{ray.__name__}.util.scheduling_strategies")
    group = util.placement_group(
        [{"CPU": 0.3}] * world.rng.randrange(1, 3), strategy=world.rng.choice(["PACK", "SPREAD"])
    )
    if not group.wait(WAIT_S):
        raise Wrong(f"a group of {group.bundle_specs} was not placed within {WAIT_S} s")
    strategy = strategies.PlacementGroupSchedulingStrategy(
        # fmt: skip
        group,
        placement_group_bundle_index=world.rng.choice([-1, 0]),
        placement_group_capture_child_tasks=world.rng.random() < 0.5,
    )
    try:
        got = ray.get(
            world.remote("fan", scheduling_strategy=strategy).remote(1, 2), timeout=WAIT_S
        )
        if got != 3:
            raise Wrong(f"want 3, got {got}")
    except world.tolerated:
        world.ended += 1
    util.remove_placement_group(group)
