# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""ray.util.queue.Queue: bounds, waits, batches, coroutines, ends."""

import asyncio
import queue

import ray
from program import eventually, main, outcome, program, say, took
from ray.util.queue import Empty, Full, Queue


@program
def in_order():
    q = Queue()
    say(q.empty(), q.full(), q.qsize(), q.size(), len(q), q.maxsize)
    for k in range(3):
        say(q.put(k))
    say(q.qsize(), q.empty())
    say([q.get() for _ in range(3)], q.empty())
    q.put(None)
    say(q.get())
    q.shutdown()


@program
def bounds():
    q = Queue(maxsize=2)
    q.put(1)
    q.put(2)
    say(q.full(), q.maxsize)
    outcome(q.put, 3, block=False)
    outcome(q.put, 3, timeout=0.1)
    outcome(q.put, 3, timeout=0)
    outcome(q.put_nowait, 3)
    say(q.get(), q.full())
    q.put_nowait(3)
    say([q.get_nowait(), q.get_nowait()])
    outcome(q.get_nowait)
    outcome(q.get, block=False)
    outcome(q.get, timeout=0.1)
    outcome(q.get, timeout=0)
    say(Full is queue.Full, Empty is queue.Empty, issubclass(Full, queue.Full))
    say(issubclass(Empty, queue.Empty))
    q.shutdown()


@program
def wrong_values():
    q = Queue(1)
    outcome(q.put, 1, timeout=-1, words=["'timeout' must be a non-negative number"])
    outcome(q.get, timeout=-1, words=["'timeout' must be a non-negative number"])
    outcome(q.get, True, "1")
    outcome(q.get_nowait_batch, -1, words=["'num_items' must be nonnegative"])
    outcome(q.get_nowait_batch, "1", words=["'num_items' must be an int"])
    outcome(q.get_nowait_batch, 1.5)
    outcome(q.put_nowait_batch, 5, words=["'items' must be an Iterable"])
    outcome(lambda: Queue(maxsize=0).maxsize)
    outcome(lambda: Queue(maxsize=-1).full())
    outcome(lambda: Queue(actor_options={"nope": 1}))
    q.shutdown()


@program
def batches():
    q = Queue(maxsize=4)
    say(q.put_nowait_batch([1, 2, 3]))
    outcome(q.put_nowait_batch, [4, 5], words=["Cannot add 2 items to queue of size 3"])
    say(q.qsize())
    q.put_nowait_batch(x for x in (4,))
    say(q.get_nowait_batch(2))
    outcome(q.get_nowait_batch, 3, words=["Cannot get 3 items from queue of size 2"])
    say(q.get_nowait_batch(0), q.get_nowait_batch(num_items=2), q.empty())
    q.shutdown()


@program
def between_tasks():
    q = Queue()

    @ray.remote
    def produce(q, count):
        for k in range(count):
            q.put(k)
        return q.maxsize

    @ray.remote
    def consume(q, count):
        return [q.get(timeout=10) for _ in range(count)]

    out = consume.remote(q, 4)
    say(ray.get(produce.remote(q, 4)), ray.get(out))
    q.shutdown()


@program
def waits():
    q = Queue(maxsize=1)

    @ray.remote
    def put_later(q, item):
        import time

        time.sleep(0.2)
        q.put(item)

    ref = put_later.remote(q, "late")
    say(q.get(timeout=10))
    ray.get(ref)
    say(took(q.get, timeout=0.3) >= 0.3, took(q.get, block=False) < 5)
    q.shutdown()


@program
def coroutines():
    @ray.remote
    class User:
        async def use(self, q):
            await q.put_async(1)
            said = [await q.get_async()]
            try:
                await q.get_async(block=False)
            except Empty:
                said.append("empty")
            try:
                await q.get_async(timeout=0.1)
            except Empty:
                said.append("empty")
            await q.put_async(2)
            try:
                await q.put_async(3, timeout=0.1)
            except Full:
                said.append("full")
            try:
                await q.get_async(timeout=-1)
            except ValueError:
                said.append("value")
            return said

    q = Queue(1)
    user = User.remote()
    say(ray.get(user.use.remote(q)))
    say(asyncio.run(q.get_async()))
    ray.kill(user)
    q.shutdown()


@program
def options_of_its_actor():
    q = Queue(actor_options={"name": "the_queue", "num_cpus": 1})
    say(q.empty())
    say(ray.get(ray.get_actor("the_queue").qsize.remote()))
    say(type(q.actor).__name__)
    q.shutdown()
    say(eventually(lambda: ray.available_resources().get("CPU") == 4))


@program
def shutdown():
    q = Queue()
    q.put(1)
    say(q.shutdown())
    outcome(q.put, 1)
    outcome(q.get, timeout=1)
    outcome(q.qsize)
    forced = Queue()
    forced.put(1)
    say(forced.shutdown(force=True))
    outcome(forced.qsize)
    timed = Queue()
    say(timed.shutdown(grace_period_s=1))
    outcome(timed.qsize)


@program
def references_in_queues():
    q = Queue()
    ref = ray.put({"a": 1})
    q.put(ref)
    q.put([ref])
    first, second = q.get(), q.get()
    say(first == {"a": 1} or ray.get(first), ray.get(second[0]))
    say(type(first).__name__)
    q.shutdown()


if __name__ == "__main__":
    main()
