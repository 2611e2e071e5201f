# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Several calls of one actor at a time: order, threads, event loops, concurrency groups."""

import asyncio
import threading
import time

import ray
from program import main, outcome, program, say, took


@ray.remote(num_cpus=0)
class Log:
    """What others tell it, in order."""

    def __init__(self):
        self.words = []

    def tell(self, word):
        self.words.append(word)

    def all(self):
        return self.words


@program
def calls_run_in_order():
    log = Log.remote()
    for k in range(50):
        log.tell.remote(k)
    say(ray.get(log.all.remote()) == list(range(50)))


@program
def order_waits_for_arguments():
    @ray.remote
    def slow():
        time.sleep(0.4)
        return "slow"

    log = Log.remote()
    log.tell.remote(slow.remote())
    log.tell.remote("fast")
    say(ray.get(log.all.remote()))


@program
def out_of_order_execution():
    @ray.remote
    def slow():
        time.sleep(0.4)
        return "slow"

    log = Log.options(allow_out_of_order_execution=True).remote()
    ray.get(log.all.remote())
    first = log.tell.remote(slow.remote())
    ray.get(log.tell.remote("fast"))
    ray.get(first)
    say(ray.get(log.all.remote()))


@program
def async_actors_do_not_wait_for_arguments_of_others():
    @ray.remote
    def slow():
        time.sleep(0.4)
        return "slow"

    @ray.remote(num_cpus=0)
    class AsyncLog:
        def __init__(self):
            self.words = []

        async def tell(self, word):
            self.words.append(word)

        async def all(self):
            return self.words

    log = AsyncLog.remote()
    ray.get(log.all.remote())
    first = log.tell.remote(slow.remote())
    ray.get(log.tell.remote("fast"))
    ray.get(first)
    say(ray.get(log.all.remote()))


@program
def ordered_execution_is_refused_where_it_cannot_be():
    class Async:
        async def f(self):
            return 1

    ordered = ray.remote(num_cpus=0, allow_out_of_order_execution=False)(Async)
    outcome(lambda: ray.get(ordered.remote().f.remote()), words=["async"])
    threaded = Log.options(allow_out_of_order_execution=False, max_concurrency=3)
    outcome(lambda: ray.get(threaded.remote().all.remote()))
    chosen = Log.options(allow_out_of_order_execution=True, max_concurrency=3)
    outcome(lambda: ray.get(chosen.remote().all.remote()))


@program
def threads_run_at_once():
    @ray.remote(num_cpus=0, max_concurrency=3)
    class Meets:
        def __init__(self):
            self.barrier = threading.Barrier(3)

        def meet(self):
            self.barrier.wait(20)
            return threading.current_thread() is threading.main_thread()

    meets = Meets.remote()
    say(ray.get([meets.meet.remote() for _ in range(3)]))


@program
def one_at_a_time_by_default():
    @ray.remote(num_cpus=0)
    class One:
        def __init__(self):
            self.inside = 0

        def f(self):
            self.inside += 1
            time.sleep(0.05)
            seen = self.inside
            self.inside -= 1
            return seen

        def where(self):
            return threading.current_thread() is threading.main_thread()

    one = One.remote()
    say(ray.get([one.f.remote() for _ in range(5)]), ray.get(one.where.remote()))


@program
def coroutines_run_at_once():
    @ray.remote(num_cpus=0)
    class Signal:
        def __init__(self):
            self.event = asyncio.Event()

        async def wait(self):
            await self.event.wait()
            return "woken"

        async def send(self):
            self.event.set()

    signal = Signal.remote()
    waiting = [signal.wait.remote() for _ in range(50)]
    ready, _ = ray.wait(waiting, timeout=0.2)
    say(len(ready))
    ray.get(signal.send.remote())
    say(set(ray.get(waiting)))


@program
def bounded_coroutines():
    @ray.remote(num_cpus=0, max_concurrency=2)
    class Few:
        def __init__(self):
            self.now = self.most = 0

        async def f(self):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.05)
            self.now -= 1

        async def read(self):
            return self.most

    few = Few.remote()
    ray.get([few.f.remote() for _ in range(8)])
    say(ray.get(few.read.remote()))


@program
def plain_methods_of_async_actors():
    @ray.remote(num_cpus=0)
    class Mixed:
        def plain(self):
            return asyncio.get_event_loop().is_running()

        async def loop(self):
            return self.on_loop()

        def on_loop(self):
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return False
            return True

        async def same_thread(self):
            return threading.get_ident()

        def thread(self):
            return threading.get_ident()

    mixed = Mixed.remote()
    say(ray.get([mixed.plain.remote(), mixed.loop.remote(), mixed.on_loop.remote()]))
    say(ray.get(mixed.same_thread.remote()) == ray.get(mixed.thread.remote()))


@program
def awaiting_references_in_async_actors():
    @ray.remote
    def one(x):
        if x < 0:
            raise ValueError("negative")
        return x

    @ray.remote(num_cpus=0)
    class Sums:
        async def sum(self, n):
            return sum(await asyncio.gather(*[one.remote(k) for k in range(n)]))

        async def fail(self):
            try:
                await one.remote(-1)
            except ValueError as error:
                return type(error).__name__

        async def blocking(self):
            return ray.get(one.remote(3))

        async def wait(self):
            done, left = await asyncio.wait([one.remote(1)], timeout=10)
            return len(done), len(left)

    sums = Sums.remote()
    say(ray.get(sums.sum.remote(4)), ray.get(sums.fail.remote()), ray.get(sums.blocking.remote()))
    outcome(ray.get, sums.wait.remote())


@program
def async_constructors_and_errors():
    @ray.remote(num_cpus=0)
    class Async:
        def __init__(self):
            self.loop = asyncio.get_event_loop()

        async def same(self):
            return self.loop is asyncio.get_running_loop()

        async def fails(self):
            await asyncio.sleep(0)
            raise KeyError("async")

    one = Async.remote()
    say(ray.get(one.same.remote()))
    outcome(ray.get, one.fails.remote(), words=["KeyError", "ray::Async.fails()"])


GROUPS = {"io": 2, "compute": 1}


@ray.remote(num_cpus=0, concurrency_groups=GROUPS)
class Grouped:
    def __init__(self):
        self.local = threading.local()

    @ray.method(concurrency_group="io")
    def io(self):
        return threading.get_ident()

    @ray.method(concurrency_group="compute")
    def compute(self, seconds=0):
        time.sleep(seconds)
        return threading.get_ident()

    def default(self):
        return threading.get_ident()

    @ray.method(concurrency_group="compute")
    def mark(self):
        self.local.mark = getattr(self.local, "mark", 0) + 1
        return self.local.mark

    def look(self):
        return getattr(self.local, "mark", None)


@program
def groups_have_threads_of_their_own():
    grouped = Grouped.remote()
    compute = ray.get([grouped.compute.remote() for _ in range(4)])
    default = ray.get([grouped.default.remote() for _ in range(4)])
    io = ray.get([grouped.io.remote() for _ in range(8)])
    say(len(set(compute)), len(set(default)), len(set(io)) <= 2)
    say(set(compute) & set(default), set(compute) & set(io), set(io) & set(default))


@program
def thread_local_state_of_a_group():
    grouped = Grouped.remote()
    say(ray.get([grouped.mark.remote() for _ in range(3)]), ray.get(grouped.look.remote()))
    say(ray.get(grouped.mark.options(concurrency_group="io").remote()))


@program
def groups_do_not_wait_for_each_other():
    grouped = Grouped.remote()
    ray.get(grouped.__ray_ready__.remote())
    busy = grouped.compute.remote(1)
    say(took(ray.get, [grouped.io.remote(), grouped.default.remote()]) < 0.9)
    say(ray.wait([busy], timeout=0)[0])
    chosen = grouped.default.options(concurrency_group="io").remote()
    say(type(ray.get(chosen)).__name__)
    ray.get(busy)


@program
def groups_that_are_not_there():
    grouped = Grouped.remote()
    outcome(lambda: ray.get(grouped.io.options(concurrency_group="none").remote()))

    @ray.remote(num_cpus=0)
    class Wants:
        @ray.method(concurrency_group="missing")
        def f(self):
            return 1

    outcome(lambda: ray.get(Wants.remote().f.remote()), words=["missing"])


@program
def wrong_groups():
    class Plain:
        def f(self):
            return 1

    def make(groups):
        return ray.get(ray.remote(num_cpus=0, concurrency_groups=groups)(Plain).remote().f.remote())

    outcome(make, {"io": 0})
    outcome(make, {"io": -1})
    outcome(make, {"io": "2"})
    outcome(make, {5: 1})


@program
def groups_of_no_method():
    class Plain:
        def f(self):
            return 1

    def make(groups):
        return ray.get(ray.remote(num_cpus=0, concurrency_groups=groups)(Plain).remote().f.remote())

    outcome(make, {"io": 1})
    outcome(make, {})
    outcome(make, None)
    outcome(make, "io", words=["concurrency_groups"])
    outcome(make, [{"name": "io", "max_concurrency": 2, "methods": []}])


@program
def groups_given_by_options():
    class Plain:
        @ray.method(concurrency_group="io")
        def f(self):
            return 1

    outcome(lambda: ray.get(Grouped.options(num_cpus=0).remote().default.remote()) > 0)
    outcome(
        lambda: ray.get(ray.remote(Plain).options(concurrency_groups={"io": 1}).remote().f.remote())
    )


@program
def async_groups_have_loops_of_their_own():
    @ray.remote(num_cpus=0, concurrency_groups={"a": 2, "b": 2})
    class Async:
        @ray.method(concurrency_group="a")
        async def block(self, seconds):
            time.sleep(seconds)
            return id(asyncio.get_running_loop())

        @ray.method(concurrency_group="b")
        async def b(self):
            return id(asyncio.get_running_loop())

        async def default(self):
            return id(asyncio.get_running_loop())

    one = Async.remote()
    ray.get(one.__ray_ready__.remote())
    blocked = one.block.remote(1)
    b, default = ray.get([one.b.remote(), one.default.remote()], timeout=10)
    say(ray.wait([blocked], timeout=0)[0], ray.get(one.__ray_ready__.remote(), timeout=0.5))
    say(len({ray.get(blocked), b, default}), ray.get(one.b.remote()) == b)


@program
def context_in_async_actors():
    @ray.remote(num_cpus=0)
    class Async:
        async def ids(self):
            await asyncio.sleep(0)
            context = ray.get_runtime_context()
            return context.get_task_id(), context.get_actor_id()

    one = Async.remote()
    a, b = ray.get([one.ids.remote(), one.ids.remote()])
    say(a[0] == b[0], a[1] == b[1] == one._actor_id.hex())


@program
def async_functions_are_refused_as_tasks():
    async def f():
        return 1

    outcome(ray.remote, f, words=["'async def' should not be used for remote tasks"])

    @ray.remote
    def wrapped():
        return asyncio.run(f())

    say(ray.get(wrapped.remote()))


@program
def futures_in_the_driver():
    @ray.remote
    def f(x):
        return x * 2

    async def both():
        return await f.remote(1), await asyncio.wait_for(
            asyncio.wrap_future(f.remote(2).future()), 10
        )

    say(asyncio.run(both()), f.remote(4).future().result(10))


@program
def threads_of_tasks_use_ray():
    @ray.remote
    def inner(x):
        return x

    @ray.remote
    def outer():
        got = []
        threads = [
            threading.Thread(target=lambda k=k: got.append(ray.get(inner.remote(k))))
            for k in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(got)

    say(ray.get(outer.remote()))


if __name__ == "__main__":
    main()
