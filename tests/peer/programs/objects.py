# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""put, get and wait: values, limits, what is refused."""

import asyncio
import threading
import time

import ray
from program import main, outcome, program, say, took


@ray.remote
def same(value):
    return value


@ray.remote
def sleeps(seconds, value=None):
    time.sleep(seconds)
    return value


@program
def put_and_get():
    for value in [None, 0, "", b"", [], {}, (), set(), 1.5, "ä\0", [1, [2, (3, {"k": {4}})]]]:
        outcome(lambda: ray.get(ray.put(value)))  # noqa: B023


@program
def put_of_a_reference():
    words = ["Calling 'put' on an ray.ObjectRef is not allowed"]
    outcome(ray.put, ray.put(1), words=words)
    outcome(lambda: type(ray.get(ray.put([ray.put(1)]))[0]).__name__)


@program
def put_of_what_cannot_be_sent():
    outcome(ray.put, threading.Lock(), words=["cannot pickle '_thread.lock' object"])
    outcome(ray.put, {"deep": [threading.Lock()]}, words=["cannot pickle '_thread.lock' object"])
    outcome(ray.put, (k for k in [1]), words=["cannot pickle 'generator' object"])


@program
def put_with_wrong_arguments():
    outcome(ray.put)
    outcome(ray.put, 1, 2, 3)
    outcome(ray.put, 1, nothing=2)


@program
def get_of_lists():
    refs = [same.remote(k) for k in range(4)]
    say(ray.get(refs), ray.get(refs[::-1]), ray.get([]))
    say(ray.get([refs[0], refs[0]]))


@program
def get_of_other_things():
    words = ["Invalid type of object refs"]
    for value in [1, "x", None, {}, {ray.put(1)}, {"a": ray.put(1)}]:
        outcome(ray.get, value, words=words)
    outcome(ray.get, [ray.put(1), 2])
    outcome(ray.get, [[ray.put(1)]])
    outcome(ray.get)


@program
def get_by_keyword():
    outcome(lambda: ray.get(object_refs=ray.put(1)))
    outcome(lambda: ray.get(object_refs=[ray.put(1)], timeout=5))
    outcome(lambda: ray.put(value=2) is not None)


@program
def timeouts_of_get():
    ref = sleeps.remote(30)
    outcome(ray.get, ref, timeout=0, words=["Get timed out: some object(s) not ready"])
    outcome(ray.get, ref, timeout=0.1, words=["Get timed out"])
    outcome(ray.get, [ray.put(1), ref], timeout=0.1)
    say(took(ray.get, ref, timeout=0.2) < 2)
    say(ray.get(ray.put(1), timeout=0), ray.get(ray.put(1), timeout=None))
    ray.cancel(ref, force=True)


@program
def get_of_a_tuple():
    outcome(ray.get, (ray.put(1), ray.put(2)), words=["Invalid type of object refs"])


@program
def wait_for_some():
    fast = [same.remote(k) for k in range(2)]
    ray.get(fast)
    slow = sleeps.remote(30)
    ready, rest = ray.wait([slow, *fast], num_returns=2)
    say(ready == fast, rest == [slow])
    ready, rest = ray.wait([slow, *fast], num_returns=3, timeout=0.1)
    say(ready == fast, rest == [slow])
    ready, rest = ray.wait([slow], timeout=0)
    say(ready, rest == [slow])
    ray.cancel(slow, force=True)


@program
def wait_of_wrong_things():
    ref = ray.put(1)
    say(ray.wait([]))
    outcome(ray.wait, ref, words=["wait() expected a list of ray.ObjectRef"])
    outcome(ray.wait, (ref,), words=["wait() expected a list of ray.ObjectRef"])
    outcome(ray.wait, {ref}, words=["wait() expected a list of ray.ObjectRef"])
    outcome(ray.wait, [1], words=["wait() expected a list of ray.ObjectRef"])
    outcome(ray.wait, [ref, "x"], words=["got list containing"])
    outcome(ray.wait, [ref, ref], words=["Wait requires a list of unique"])
    outcome(ray.wait, None, words=["wait() expected a list of ray.ObjectRef"])


@program
def wait_with_wrong_numbers():
    ref = ray.put(1)
    outcome(ray.wait, [ref], num_returns=0, words=["Invalid number of objects to return 0"])
    outcome(ray.wait, [ref], num_returns=-1, words=["Invalid number of objects to return -1"])
    outcome(ray.wait, [ref], num_returns=2, words=["num_returns cannot be greater than the number"])
    outcome(ray.wait, [ref], num_returns="1")
    outcome(ray.wait, [ref], timeout=-1, words=["The 'timeout' argument must be nonnegative"])
    outcome(ray.wait, [ref], timeout="1")
    outcome(ray.wait, [ref], 1)
    outcome(ray.wait, [], num_returns=5)
    outcome(ray.wait, [], timeout=-1)


@program
def wait_sees_errors_as_ready():
    @ray.remote
    def fails():
        raise ValueError

    ref = fails.remote()
    ready, rest = ray.wait([ref], timeout=20)
    say(ready == [ref], rest)
    outcome(ray.get, ref)


@program
def wait_without_fetching():
    refs = [same.remote(k) for k in range(3)]
    ready, rest = ray.wait(refs, num_returns=3, fetch_local=False)
    say(len(ready), len(rest))


@program
def gets_give_equal_copies():
    value = [1, 2]
    ref = ray.put(value)
    value.append(3)
    first, second = ray.get(ref), ray.get(ref)
    say(first, first is second)
    first.append(4)
    say(second)


@program
def a_reference_outlives_the_name():
    ref = same.remote([1])
    other = same.remote([ref])
    del ref
    say(ray.get(ray.get(other)[0]))


@program
def large_values():
    ref = ray.put(b"x" * 5_000_000)
    say(len(ray.get(ref)), len(ray.get(same.remote(ref))))
    say(ray.get(same.remote("y" * 300_000))[-1])


@program
def many_small_values():
    refs = [ray.put(k) for k in range(2000)]
    say(sum(ray.get(refs)), len(set(refs)))


@program
def await_of_references():
    async def main_():
        first = await same.remote(1)
        second = await asyncio.wait_for(same.remote(2), 20)
        both = await asyncio.gather(same.remote(3), ray.put(4))
        return first, second, both

    say(asyncio.run(main_()))


@program
def await_of_failures():
    @ray.remote
    def fails():
        raise KeyError("k")

    async def main_():
        await fails.remote()

    outcome(asyncio.run, main_())


@program
def asyncio_futures():
    async def main_():
        ref = same.remote(5)
        future = asyncio.wrap_future(ref.future())
        done, pending = await asyncio.wait([ref.as_future(), future], timeout=20)
        return len(done), len(pending), await future

    outcome(lambda: asyncio.run(main_()))


@program
def timeouts_of_await():
    ref = sleeps.remote(30)

    async def main_():
        await asyncio.wait_for(ref, 0.2)

    outcome(asyncio.run, main_())
    ray.cancel(ref, force=True)


@program
def concurrent_futures():
    future = same.remote(6).future()
    say(future.result(timeout=20), future.done())

    @ray.remote
    def fails():
        raise KeyError("k")

    future = fails.remote().future()
    outcome(future.result, timeout=20)
    outcome(lambda: type(future.exception(timeout=20)).__name__)


@program
def callbacks_of_futures():
    import concurrent.futures

    seen = []
    future = same.remote(7).future()
    future.add_done_callback(lambda f: seen.append(f.result()))
    concurrent.futures.wait([future], timeout=20)
    say(seen)


@program
def threads_get_too():
    found = []
    ref = same.remote(8)
    threads = [threading.Thread(target=lambda: found.append(ray.get(ref))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(found)


@program
def get_inside_tasks():
    @ray.remote
    def outer(refs):
        ready, rest = ray.wait(refs, num_returns=len(refs), timeout=20)
        return ray.get(ready), len(rest), ray.get(ray.put("inner"))

    say(ray.get(outer.remote([same.remote(1), ray.put(2)])))


if __name__ == "__main__":
    main()
