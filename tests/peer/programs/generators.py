# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Generators: streams of references from tasks and methods, several returns, dynamic ones."""

import asyncio
import pickle
import time

import ray
from program import eventually, main, outcome, program, say


@ray.remote
def count(n, fail_at=None):
    for k in range(n):
        if k == fail_at:
            raise ValueError(f"at {k}")
        yield k


@ray.remote(num_cpus=0)
class Source:
    def __init__(self):
        self.made = 0

    def items(self, n):
        for k in range(n):
            self.made = k + 1
            yield k

    def how_many(self):
        return self.made

    def plain(self):
        return [1, 2, 3]


@ray.remote(num_cpus=0)
class AsyncSource:
    def __init__(self):
        self.made = 0

    async def items(self, n, fail_at=None):
        for k in range(n):
            await asyncio.sleep(0)
            if k == fail_at:
                raise ValueError(f"at {k}")
            self.made = k + 1
            yield k

    async def how_many(self):
        return self.made


@program
def streams_of_tasks():
    stream = count.remote(3)
    say(type(stream).__name__, isinstance(stream, ray.ObjectRefGenerator))
    say([type(ref).__name__ for ref in stream])
    outcome(next, stream)
    say([ray.get(ref) for ref in count.remote(4)], list(count.remote(0)))
    say(iter(stream) is stream)


@program
def streams_of_methods():
    source = Source.remote()
    say([ray.get(ref) for ref in source.items.remote(3)])
    say(ray.get(list(source.items.remote(2))), ray.get(source.plain.remote()))
    async_source = AsyncSource.remote()
    say([ray.get(ref) for ref in async_source.items.remote(3)])


@program
def errors_midway():
    stream = count.remote(4, 2)
    say(ray.get(next(stream)), ray.get(next(stream)))
    bad = next(stream)
    outcome(ray.get, bad, words=["at 2", "ray::count()"])
    outcome(next, stream)
    outcome(ray.get, stream.completed(), words=["at 2"])


@program
def errors_at_once():
    @ray.remote
    def fails():
        raise KeyError("first")
        yield 1

    stream = fails.remote()
    outcome(ray.get, next(stream), words=["first"])
    outcome(next, stream)


@program
def errors_midway_in_async_methods():
    stream = AsyncSource.remote().items.remote(3, 1)
    say(ray.get(next(stream)))
    outcome(ray.get, next(stream), words=["at 1"])
    outcome(next, stream)


@program
def completed_and_finished():
    stream = count.remote(2)
    say(ray.get(stream.completed()))
    say(stream.is_finished(), [ray.get(ref) for ref in stream], stream.is_finished())
    say(stream.next_ready())


@program
def next_is_ready():
    @ray.remote
    def slow():
        yield 1
        time.sleep(0.7)
        yield 2

    stream = slow.remote()
    say(eventually(stream.next_ready), ray.get(next(stream)), stream.next_ready())
    say(eventually(stream.next_ready), ray.get(next(stream)))


@program
def waiting_for_streams():
    @ray.remote
    def never():
        time.sleep(30)
        yield 1

    stream, blocked = count.remote(2), never.remote()
    ready, left = ray.wait([stream, blocked], timeout=20)
    say(ready == [stream], left == [blocked])
    ready, left = ray.wait([blocked], timeout=0.1)
    say(len(ready), len(left))
    ready, left = ray.wait([stream, ray.put(1)], num_returns=2, timeout=20)
    say(len(ready), len(left))
    ray.cancel(blocked, force=True)


@program
def get_of_a_stream():
    outcome(lambda: type(ray.get(count.remote(3))).__name__)
    stream = count.remote(2)
    say(ray.get(stream) is stream, [ray.get(ref) for ref in stream])


@program
def streams_in_asyncio():
    async def read():
        got = []
        async for ref in count.remote(3):
            got.append(await ref)
        return got

    async def ends():
        stream = count.remote(0)
        try:
            await stream.__anext__()
        except StopAsyncIteration:
            return "end"

    say(asyncio.run(read()), asyncio.run(ends()))


@program
def streams_stay_where_they_are():
    stream = count.remote(2)
    outcome(pickle.dumps, stream)

    @ray.remote
    def take(x):
        return 1

    outcome(lambda: ray.get(take.remote(stream)))
    outcome(lambda: ray.put(stream))


@program
def a_number_of_returns():
    a, b, c = count.options(num_returns=3).remote(3)
    say(ray.get([c, b, a]))
    say(ray.get(count.options(num_returns=1).remote(1)))
    say(count.options(num_returns=0).remote(1))


@program
def too_few_items():
    refs = count.options(num_returns=3).remote(2)
    outcome(ray.get, refs[0])
    outcome(ray.get, refs[2], words=["num_returns", "3"])


@program
def too_many_items():
    refs = count.options(num_returns=2).remote(4)
    outcome(ray.get, refs)


@program
def an_error_among_a_number_of_returns():
    refs = count.options(num_returns=3).remote(3, 1)
    outcome(ray.get, refs[0])
    outcome(ray.get, refs[1], words=["at 1"])
    outcome(ray.get, refs[2], words=["at 1"])


@program
def a_number_of_returns_of_methods():
    refs = Source.remote().items.options(num_returns=2).remote(2)
    say(ray.get(refs))

    @ray.remote(num_cpus=0)
    class Marked:
        @ray.method(num_returns=2)
        def two(self):
            yield "a"
            yield "b"

    say(ray.get(Marked.remote().two.remote()))


@program
def dynamic_returns():
    ref = count.options(num_returns="dynamic").remote(3)
    say(type(ref).__name__)
    items = ray.get(ref)
    say(type(items).__name__, isinstance(items, ray.DynamicObjectRefGenerator), len(items))
    say([ray.get(r) for r in items])


@program
def dynamic_returns_that_fail():
    ref = count.options(num_returns="dynamic").remote(3, 2)
    outcome(lambda: [type(r).__name__ for r in ray.get(ref)], words=["at 2"])


@program
def dynamic_returns_are_passed_on():
    @ray.remote
    def total(items):
        return sum(ray.get(list(items)))

    ref = count.options(num_returns="dynamic").remote(4)
    say(ray.get(total.remote(ref)), ray.get(total.remote(ray.get(ref))))


@program
def wrong_numbers_of_returns():
    def plain():
        return 1

    outcome(lambda: ray.remote(num_returns="streaming")(plain), words=["streaming", "generator"])
    outcome(lambda: ray.remote(num_returns="dynamic")(plain), words=["dynamic", "generator"])
    outcome(lambda: ray.remote(plain).options(num_returns="streaming"), words=["generator"])
    outcome(lambda: count.options(num_returns="some").remote(1))
    outcome(lambda: count.options(num_returns=-1), words=["num_returns"])
    outcome(lambda: count.options(num_returns=1.5))
    outcome(lambda: count.options(num_returns=None).remote(1).completed() is not None)


@program
def wrong_back_pressure():
    outcome(lambda: count.options(_generator_backpressure_num_objects=0), words=["not allowed"])
    outcome(lambda: count.options(_generator_backpressure_num_objects="1"))
    stream = count.options(_generator_backpressure_num_objects=-1).remote(3)
    say([ray.get(r) for r in stream])


@program
def back_pressure_of_methods():
    source = Source.options(max_concurrency=2).remote()
    stream = source.items.options(_generator_backpressure_num_objects=2).remote(6)
    say(ray.get(next(stream)))
    time.sleep(0.5)
    before = ray.get(source.how_many.remote())
    say(before)
    say(ray.get(next(stream)), ray.get(list(stream)))
    say(ray.get(source.how_many.remote()))


@program
def back_pressure_of_async_methods():
    source = AsyncSource.remote()
    stream = source.items.options(_generator_backpressure_num_objects=1).remote(5)
    say(eventually(lambda: ray.get(source.how_many.remote()) == 1))
    time.sleep(0.3)
    say(ray.get(source.how_many.remote()))
    say(ray.get(list(stream)), ray.get(source.how_many.remote()))


@program
def items_are_passed_on():
    @ray.remote
    def double(x):
        return 2 * x

    say(ray.get([double.remote(ref) for ref in count.remote(4)]))
    say(ray.get([double.remote(ref) for ref in Source.remote().items.remote(2)]))


@program
def references_outlive_the_stream():
    stream = count.remote(3)
    refs = list(stream)
    del stream
    say(ray.get(refs), ray.get(refs))


@program
def a_stream_that_is_dropped():
    source = Source.remote()
    stream = source.items.remote(1000)
    say(ray.get(next(stream)))
    del stream
    say(ray.get(source.how_many.remote()) > 0)


@program
def generators_that_return_others():
    @ray.remote
    def outer():
        for ref in count.remote(3):
            yield ray.get(ref) * 10

    say([ray.get(r) for r in outer.remote()])

    @ray.remote
    def maker():
        return (k for k in range(2))

    outcome(lambda: ray.get(maker.remote()))
    say(ray.get(maker.options(num_returns=2).remote()))


@program
def streams_of_dead_actors():
    import os

    @ray.remote(num_cpus=0)
    class Dies:
        def items(self):
            yield 1
            time.sleep(0.3)
            os._exit(1)
            yield 2

    stream = Dies.remote().items.remote()
    say(ray.get(next(stream)))
    outcome(lambda: ray.get(next(stream)))


@program
def large_items():
    @ray.remote
    def large(n):
        for k in range(n):
            yield bytes([k]) * 1_000_000

    say([(len(v), v[0]) for v in (ray.get(r) for r in large.remote(3))])


@program
def the_end_of_a_stream():
    stream = count.remote(2)
    ray.get(stream.completed())
    say(stream.next_ready(), ray.get(next(stream)), ray.get(next(stream)))
    say(stream.is_finished())
    outcome(next, stream)
    say(stream.is_finished(), stream.next_ready())
    empty = count.remote(0)
    ray.get(empty.completed())
    outcome(next, empty)
    say(empty.is_finished(), empty.next_ready())


@program
def waiting_for_streams_that_have_ended():
    stream = count.remote(1)
    ready, _ = ray.wait([stream], timeout=20)
    say(len(ready), ray.get(next(stream)))
    ready, _ = ray.wait([stream], timeout=20)
    say(len(ready))
    outcome(next, stream)


if __name__ == "__main__":
    main()
