# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""ray.cancel: of calls that wait, run, have ended; of actors, coroutines, generators."""

import asyncio
import os
import tempfile
import time

import ray
from program import eventually, main, outcome, program, say, took


def new_path():
    return tempfile.mktemp()


def is_there(path):
    return eventually(lambda: os.path.exists(path))


def note(path):
    open(path, "w").close()


@ray.remote(num_cpus=0)
def sleeps(path, seconds=30):
    note(path)
    for _ in range(int(seconds * 50)):
        time.sleep(0.02)
    return "slept"


@ray.remote
def quick():
    return "quick"


@program
def running():
    path = new_path()
    ref = sleeps.remote(path)
    is_there(path)
    say(ray.cancel(ref))
    error = outcome(ray.get, ref, timeout=20, words=["was cancelled"])
    say(isinstance(error, ray.exceptions.TaskCancelledError))
    outcome(ray.get, ref, timeout=20)


@program
def waiting_for_a_resource():
    ref = quick.options(resources={"nowhere": 1}).remote()
    say(ray.cancel(ref))
    outcome(ray.get, ref, timeout=20)


@program
def waiting_for_an_argument():
    path = new_path()

    @ray.remote
    def takes(x):
        return x

    slow = sleeps.remote(path, 3)
    ref = takes.remote(slow)
    is_there(path)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20)
    say(ray.get(slow))


@program
def after_the_end():
    ref = quick.remote()
    say(ray.get(ref))
    say(ray.cancel(ref), ray.get(ref))
    say(ray.cancel(ref, force=True), ray.get(ref))
    say(ray.cancel(ref, recursive=False), ray.get(ref))


@program
def by_force():
    path = new_path()

    @ray.remote(num_cpus=0, max_retries=0)
    def stubborn():
        note(path)
        while True:
            try:
                time.sleep(30)
            except KeyboardInterrupt:
                pass

    ref = stubborn.remote()
    is_there(path)
    ray.cancel(ref, force=True)
    outcome(ray.get, ref, timeout=20)


@program
def by_force_is_not_retried():
    path = new_path()
    ref = sleeps.options(max_retries=5).remote(path)
    is_there(path)
    ray.cancel(ref, force=True)
    outcome(ray.get, ref, timeout=20)


@program
def cleaning_up_after_it():
    path, cleaned = new_path(), new_path()

    @ray.remote(num_cpus=0)
    def cleans():
        try:
            note(path)
            for _ in range(1000):
                time.sleep(0.02)
        finally:
            note(cleaned)

    ref = cleans.remote()
    is_there(path)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20)
    say(is_there(cleaned))


@program
def children_are_cancelled_too():
    child_began, child_ended = new_path(), new_path()

    @ray.remote(num_cpus=0)
    def child():
        try:
            note(child_began)
            for _ in range(1000):
                time.sleep(0.02)
        except KeyboardInterrupt:
            note(child_ended)
            raise

    @ray.remote(num_cpus=0)
    def parent():
        return ray.get(child.remote())

    ref = parent.remote()
    is_there(child_began)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20)
    say(is_there(child_ended))


@program
def children_stay_without_recursive():
    began, stop = new_path(), new_path()

    @ray.remote(num_cpus=0)
    def child():
        note(began)
        return eventually(lambda: os.path.exists(stop), 30)

    @ray.remote(num_cpus=0)
    def parent(box):
        box.append(child.remote())
        ray.get(keeper.keep.remote(box))
        return ray.get(box[0])

    @ray.remote(num_cpus=0)
    class Keeper:
        refs = ()

        def keep(self, refs):
            self.refs = refs

        def refs_of(self):
            return self.refs

    keeper = Keeper.remote()
    ref = parent.remote([])
    is_there(began)
    eventually(lambda: ray.get(keeper.refs_of.remote()))
    kept = ray.get(keeper.refs_of.remote())
    ray.cancel(ref, recursive=False)
    try:
        ray.get(ref, timeout=20)
    except ray.exceptions.TaskCancelledError:
        say("cancelled")
    note(stop)
    outcome(ray.get, kept[0], timeout=20)


@program
def wrong_values():
    outcome(ray.cancel, 5, words=["ray.cancel() only supported for object refs"])
    outcome(ray.cancel, None)
    outcome(ray.cancel, [quick.remote()])
    outcome(ray.cancel, "text")
    outcome(ray.cancel)
    outcome(lambda: ray.cancel(quick.remote(), True))


@program
def of_put_values():
    outcome(ray.cancel, ray.put(1))
    ref = ray.put(2)
    outcome(lambda: ray.cancel(ref, force=True))
    say(ray.get(ref))


@ray.remote(num_cpus=0)
class Actor:
    def sleep(self, path, seconds=30):
        note(path)
        for _ in range(int(50 * seconds)):
            time.sleep(0.02)
            if ray.get_runtime_context().is_canceled():
                return "saw it"
        return "slept"

    def deaf(self, path, seconds=1):
        self.ended = False
        note(path)
        time.sleep(seconds)
        self.ended = True
        return "slept"

    def to_the_end(self):
        return self.ended

    def one(self):
        return 1


@program
def queued_calls_of_actors():
    path = new_path()
    actor = Actor.remote()
    busy = actor.deaf.remote(path)
    queued = actor.one.remote()
    is_there(path)
    ray.cancel(queued)
    outcome(ray.get, queued, timeout=20)
    say(ray.get(busy), ray.get(actor.one.remote()))


@program
def running_calls_of_actors():
    path = new_path()
    actor = Actor.remote()
    ray.get(actor.one.remote())
    ref = actor.deaf.remote(path, 0.7)
    is_there(path)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20)
    say(ray.get(actor.to_the_end.remote()))


@program
def calls_that_ask_whether_they_are_cancelled():
    path = new_path()
    actor = Actor.remote()
    ref = actor.sleep.remote(path)
    is_there(path)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20)
    say(ray.get(actor.one.remote(), timeout=20))


@program
def calls_of_actors_by_force():
    path = new_path()
    actor = Actor.remote()
    ref = actor.deaf.remote(path)
    is_there(path)
    outcome(ray.cancel, ref, force=True, words=["force=True is not supported for actor tasks"])
    say(ray.get(ref), ray.get(actor.one.remote()))


@ray.remote(num_cpus=0)
class Async:
    async def sleep(self, path, seen=None):
        note(path)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            if seen:
                note(seen)
            raise

    async def shields(self, path):
        note(path)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "shielded"

    async def nested(self, child, path):
        return await child.sleep.remote(path)

    async def one(self):
        return 1


@program
def coroutines():
    path, seen = new_path(), new_path()
    actor = Async.remote()
    ref = actor.sleep.remote(path, seen)
    is_there(path)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20, words=["was cancelled"])
    say(is_there(seen), ray.get(actor.one.remote()))


@program
def coroutines_that_catch_it():
    path = new_path()
    actor = Async.remote()
    ref = actor.shields.remote(path)
    is_there(path)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20)


@program
def coroutines_that_wait_their_turn():
    path = new_path()
    actor = Async.options(max_concurrency=1).remote()
    first = actor.sleep.remote(path)
    is_there(path)
    second = actor.one.remote()
    ray.cancel(second)
    outcome(ray.get, second, timeout=20)
    ray.cancel(first)
    outcome(ray.get, first, timeout=20)
    say(ray.get(actor.one.remote()))


@program
def coroutines_and_their_children():
    path = new_path()
    parent, child = Async.remote(), Async.remote()
    ref = parent.nested.remote(child, path)
    is_there(path)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20)
    say(ray.get([parent.one.remote(), child.one.remote()]))


@program
def generators():
    @ray.remote(num_cpus=0)
    def items():
        for k in range(1000):
            yield k
            time.sleep(0.02)

    stream = items.remote()
    say(ray.get(next(stream)))
    say(ray.cancel(stream))

    def drain():
        for ref in stream:
            ray.get(ref)

    outcome(drain, words=["was cancelled"])


@program
def generators_of_async_actors():
    @ray.remote(num_cpus=0)
    class Items:
        async def items(self):
            for k in range(1000):
                yield k
                await asyncio.sleep(0.02)

        async def one(self):
            return 1

    actor = Items.remote()
    stream = actor.items.remote()
    say(ray.get(next(stream)))
    ray.cancel(stream)

    def drain():
        for ref in stream:
            ray.get(ref)

    outcome(drain, words=["was cancelled"])
    say(ray.get(actor.one.remote()))


@program
def a_cancelled_call_is_not_retried():
    path = new_path()
    ref = sleeps.options(max_retries=5, retry_exceptions=True).remote(path)
    is_there(path)
    os.unlink(path)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20)
    time.sleep(0.3)
    say(os.path.exists(path))


@program
def several_returns():
    path = new_path()

    @ray.remote(num_cpus=0, num_returns=2)
    def two():
        note(path)
        for _ in range(1000):
            time.sleep(0.02)
        return 1, 2

    a, b = two.remote()
    is_there(path)
    ray.cancel(a)
    outcome(ray.get, a, timeout=20)
    outcome(ray.get, b, timeout=20)


@program
def a_cancelled_call_is_ready():
    ref = quick.options(resources={"nowhere": 1}).remote()
    say(took(ray.cancel, ref) < 1)
    ready, left = ray.wait([ref], timeout=20)
    say(len(ready), len(left))


@program
def twice():
    path = new_path()
    ref = sleeps.remote(path)
    is_there(path)
    ray.cancel(ref)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=20)
    say(ray.cancel(ref), ray.get(quick.remote()))


@program
def from_another_task():
    path = new_path()

    @ray.remote(num_cpus=0)
    def cancels(refs):
        ray.cancel(refs[0])

    ref = sleeps.remote(path)
    is_there(path)
    outcome(ray.get, cancels.remote([ref]))
    outcome(ray.get, ref, timeout=20)


if __name__ == "__main__":
    main()
