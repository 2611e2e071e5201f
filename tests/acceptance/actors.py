# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Stateful actors: order, names, handles passed around, async and threaded methods, an actor
pool."""

import asyncio
import threading
import time

from runtime import ray

ray.init(num_cpus=4)


@ray.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def increment(self, by=1):
        self.value += by
        return self.value

    def get_count(self):
        return self.value


counter = Counter.remote(10)
refs = [counter.increment.remote() for _ in range(1000)]
assert ray.get(refs) == list(range(11, 1011))  # one caller's calls run in the order they were made


@ray.remote
def work(handle, n):
    return ray.get([handle.increment.remote(2) for _ in range(n)])[-1]


ray.get([work.remote(counter, 50) for _ in range(4)])
assert ray.get(counter.get_count.remote()) == 1010 + 2 * 50 * 4

Counter.options(name="shared", lifetime="detached").remote(5)
assert ray.get(ray.get_actor("shared").increment.remote()) == 6
same = Counter.options(name="shared", get_if_exists=True).remote(99)
assert ray.get(same.get_count.remote()) == 6
ray.kill(same)
try:
    for _ in range(100):
        ray.get_actor("shared")
        time.sleep(0.1)
    raise AssertionError("a killed actor kept its name for 10 s")
except ValueError:
    pass


@ray.remote
class Gate:
    def __init__(self):
        self.event = asyncio.Event()

    async def wait(self):
        await self.event.wait()
        return "open"

    async def open(self):
        self.event.set()


gate = Gate.remote()
waiting = [gate.wait.remote() for _ in range(100)]
assert ray.wait(waiting, timeout=0.2)[0] == []
ray.get(gate.open.remote())
assert ray.get(waiting) == ["open"] * 100


@ray.remote(max_concurrency=4)
class Threads:
    def __init__(self):
        self.barrier = threading.Barrier(4)

    def meet(self):
        return self.barrier.wait(timeout=30) >= 0


threads = Threads.remote()
assert all(ray.get([threads.meet.remote() for _ in range(4)]))

from_pool = importlib_pool = __import__(f"{ray.__name__}.util", fromlist=["ActorPool"]).ActorPool(
    [Counter.remote(i) for i in range(2)]
)
assert sorted(from_pool.map(lambda a, v: a.increment.remote(v), [10, 10])) == [10, 11]
print("1000 ordered calls, 100 waiting coroutines, 4 threads")
