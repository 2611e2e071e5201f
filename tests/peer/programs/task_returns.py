# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What tasks give: several values, wrong numbers of them, generators, dynamic references."""
# ruff: noqa: UP028 (Ray 2.60 sends values into generators, which `yield from range()` hands on)

import collections
import time

import ray
from program import main, outcome, program, say


@ray.remote
def values(count):
    return list(range(count))


@ray.remote
def count_to(n, fails=False):
    for k in range(n):
        yield k
    if fails:
        raise KeyError("at the end")


def drained(stream):
    """What each reference of a stream holds."""
    found = []
    for ref in stream:
        try:
            found.append(ray.get(ref))
        except Exception as error:
            found.append(type(error).__name__)
    return found


@program
def several_returns():
    @ray.remote(num_returns=2)
    def pair():
        return 1, 2

    a, b = pair.remote()
    say(ray.get([b, a]))
    outcome(ray.get, pair.options(num_returns=3).remote(), words=["3"])
    say(pair.options(num_returns=0).remote())
    say(type(pair.remote()).__name__, type(pair.options(num_returns=1).remote()).__name__)


@program
def too_few_and_too_many_values():
    words = ["Task returned 2 objects, but num_returns=3"]
    refs = values.options(num_returns=3).remote(2)
    for ref in refs:
        outcome(ray.get, ref, words=words)
    refs = values.options(num_returns=2).remote(3)
    for ref in refs:
        outcome(ray.get, ref, words=["Task returned 3 objects, but num_returns=2"])


@program
def what_counts_as_several_values():
    @ray.remote(num_returns=2)
    def give(kind):
        return {
            "list": [1, 2],
            "tuple": (1, 2),
            "str": "ab",
            "dict": {"a": 1, "b": 2},
            "set": {1},
            "none": None,
            "number": 5,
            "deque": collections.deque([1, 2]),
        }[kind]

    for kind in ["list", "tuple", "str", "dict", "set", "none", "number", "deque"]:
        say(kind)
        outcome(ray.get, give.remote(kind))


@program
def no_return_value():
    @ray.remote(num_returns=0)
    def nothing():
        return 5

    outcome(nothing.remote)

    @ray.remote
    def none():
        pass

    outcome(ray.get, none.remote())


@program
def one_error_for_all_returns():
    @ray.remote(num_returns=2)
    def fails():
        raise ValueError("both")

    for ref in fails.remote():
        outcome(ray.get, ref, words=["both"])


@program
def references_as_several_values():
    @ray.remote(num_returns=2)
    def refs():
        return ray.put(1), ray.put(2)

    a, b = ray.get(refs.remote())
    say(type(a).__name__, ray.get([a, b]))


@program
def a_generator_function_streams():
    stream = count_to.remote(3)
    say(type(stream).__name__)
    say(drained(stream))
    outcome(next, stream)
    say(drained(count_to.remote(0)))


@program
def a_stream_that_fails():
    stream = count_to.remote(2, fails=True)
    say(drained(stream))
    stream = count_to.remote(2, fails=True)
    for ref in stream:
        outcome(ray.get, ref, words=["at the end"])


@program
def a_generator_with_num_returns():
    @ray.remote(num_returns=3)
    def items(n, fails=False):
        for k in range(n):
            yield k
        if fails:
            raise ValueError("late")

    say(ray.get(items.remote(3)))
    for n, fails in [(2, False), (4, False), (1, True), (3, True)]:
        say(n, fails)
        for ref in items.remote(n, fails):
            outcome(ray.get, ref, words=["late", "num_returns"])


@program
def num_returns_one_of_a_generator():
    @ray.remote(num_returns=1)
    def one():
        yield 1

    outcome(ray.get, one.remote(), words=["pickle", "generator"])


@program
def streaming_of_a_plain_function():
    words = ["can only be used with generator functions"]
    outcome(ray.remote(num_returns="streaming"), lambda: [1], words=words)
    outcome(ray.remote(num_returns="dynamic"), lambda: [1], words=words)
    outcome(values.options, num_returns="streaming", words=words)
    outcome(lambda: drained(count_to.options(num_returns="streaming").remote(2)))


@program
def dynamic_references():
    @ray.remote(num_returns="dynamic")
    def items(n):
        for k in range(n):
            yield k

    ref = items.remote(3)
    say(type(ref).__name__)
    refs = ray.get(ref)
    say(type(refs).__name__)
    outcome(lambda: len(refs))
    say([ray.get(r) for r in refs])
    say(len(list(ray.get(items.remote(0)))))


@program
def dynamic_references_of_a_failure():
    @ray.remote(num_returns="dynamic", max_retries=0)
    def items(fails_at):
        for k in range(3):
            if k == fails_at:
                raise ValueError(f"at {k}")
            yield k

    outcome(lambda: drained(ray.get(items.remote(0))), words=["at 0"])
    outcome(lambda: drained(ray.get(items.remote(2))), words=["at 2"])


@program
def dynamic_references_travel():
    @ray.remote(num_returns="dynamic")
    def items(n):
        for k in range(n):
            yield k

    @ray.remote
    def total(refs):
        return sum(ray.get(list(refs)))

    outcome(lambda: ray.get(total.remote(items.remote(4))))
    outcome(lambda: ray.get(total.remote(ray.get(items.remote(4)))))


@program
def get_of_a_stream():
    stream = count_to.remote(2)
    outcome(lambda: [type(ref).__name__ for ref in ray.get(stream)])
    outcome(lambda: drained(stream))


@program
def wait_of_a_stream():
    stream = count_to.remote(2)
    ready, rest = ray.wait([stream], timeout=10)
    say(ready == [stream], rest)
    say(ray.get(next(stream)))
    outcome(ray.wait, stream, words=["wait() expected a list"])
    say(drained(stream))
    ready, rest = ray.wait([stream], timeout=1)
    say(len(ready), len(rest))


@program
def a_stream_is_ready_item_by_item():
    @ray.remote
    def slow():
        yield 1
        time.sleep(30)
        yield 2

    stream = slow.remote()
    say(ray.get(next(stream)))
    ready, rest = ray.wait([stream], timeout=0.2)
    say(len(ready), len(rest))
    ray.cancel(stream)
    for ref in stream:
        try:
            ray.get(ref)
        except ray.exceptions.TaskCancelledError:
            say("cancelled")


@program
def methods_of_a_stream():
    stream = count_to.remote(2)
    say(type(stream.completed()).__name__)
    outcome(lambda: ray.get(stream.completed()))
    outcome(lambda: stream.is_finished())
    outcome(lambda: stream.next_ready())
    say(drained(stream))
    outcome(lambda: stream.is_finished())
    outcome(lambda: stream.next_ready())
    say(stream is iter(stream))


@program
def a_stream_cannot_travel():
    @ray.remote
    def take(stream):
        return drained(stream)

    outcome(lambda: ray.get(take.remote(count_to.remote(2))), words=["ObjectRefGenerator"])
    outcome(lambda: ray.put(count_to.remote(2)), words=["ObjectRefGenerator"])


@program
def references_inside_a_stream():
    @ray.remote
    def refs():
        yield ray.put("a")
        yield [ray.put("b")]

    first, second = [ray.get(ref) for ref in refs.remote()]
    say(type(first).__name__, ray.get(first), ray.get(second[0]))


@program
def a_generator_that_returns_a_value():
    @ray.remote
    def items():
        yield 1
        return 5

    say(drained(items.remote()))

    @ray.remote
    def made():
        return [(k for k in range(2))]

    outcome(lambda: ray.get(made.remote()), words=["cannot pickle 'generator' object"])


@program
def streams_of_actors():
    @ray.remote
    class A:
        def items(self, n):
            for k in range(n):
                yield k

        async def later(self, n):
            for k in range(n):
                yield k

    @ray.remote
    class B:
        def items(self, n):
            for k in range(n):
                yield k

    a, b = A.remote(), B.remote()
    say(drained(b.items.remote(2)), drained(a.later.remote(2)))
    say(type(b.items.options(num_returns="streaming").remote(1)).__name__)
    outcome(lambda: ray.get(b.items.options(num_returns=2).remote(2)))


@program
def values_that_are_not_picklable():
    @ray.remote
    def lock():
        import threading

        return threading.Lock()

    outcome(ray.get, lock.remote(), words=["cannot pickle '_thread.lock' object"])

    @ray.remote
    def stream():
        import threading

        yield 1
        yield threading.Lock()

    for ref in stream.remote():
        outcome(ray.get, ref, words=["cannot pickle '_thread.lock' object"])


if __name__ == "__main__":
    main()
