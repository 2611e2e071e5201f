# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""ActorPool and multiprocessing.Pool."""

import multiprocessing
import os
import time

import ray
from program import main, outcome, program, say
from ray.util import ActorPool
from ray.util.multiprocessing import Pool


@ray.remote(num_cpus=0)
class Worker:
    def double(self, x):
        if x == "bad":
            raise ValueError("bad")
        return 2 * x

    def after(self, seconds, x):
        time.sleep(seconds)
        return x


def double(actor, value):
    return actor.double.remote(value)


@program
def map_in_order():
    pool = ActorPool([Worker.remote(), Worker.remote()])
    say(list(pool.map(double, [1, 2, 3, 4])))
    say(sorted(pool.map_unordered(double, [1, 2, 3])))
    say(list(pool.map(double, [])))
    mapped = pool.map(double, range(3))
    say(type(mapped).__name__, next(mapped), list(mapped))


@program
def submit_and_get():
    pool = ActorPool([Worker.remote()])
    say(pool.has_next(), pool.has_free())
    outcome(pool.get_next, words=["No more results to get"])
    outcome(pool.get_next_unordered, words=["No more results to get"])
    say(pool.submit(double, 1))
    pool.submit(double, 2)
    say(pool.has_next(), pool.has_free())
    say(pool.get_next(), pool.get_next(), pool.has_next())
    pool.submit(double, 3)
    say(pool.get_next_unordered(), pool.has_free())


@program
def timeouts_of_a_pool():
    pool = ActorPool([Worker.remote()])
    pool.submit(lambda a, v: a.after.remote(0.6, v), 1)
    outcome(pool.get_next, timeout=0.1, words=["Timed out waiting for result"])
    outcome(pool.get_next, timeout=0.1)
    say(pool.get_next())
    pool.submit(lambda a, v: a.after.remote(0.6, v), 2)
    outcome(pool.get_next_unordered, timeout=0.1)
    say(pool.get_next_unordered())
    pool.submit(lambda a, v: a.after.remote(0.5, v), 3)
    outcome(pool.get_next, timeout=0.1, ignore_if_timedout=True)
    say(pool.has_next())


@program
def errors_of_a_pool():
    pool = ActorPool([Worker.remote()])
    for value in (1, "bad", 3):
        pool.submit(double, value)
    say(pool.get_next())
    outcome(pool.get_next)
    say(pool.get_next(), pool.has_free())
    mapped = pool.map(double, [1, "bad", 3])
    say(next(mapped))
    outcome(next, mapped)
    outcome(next, mapped)


@program
def order_of_a_pool():
    pool = ActorPool([Worker.remote(), Worker.remote()])
    pool.submit(lambda a, v: a.after.remote(0.5, v), "slow")
    pool.submit(lambda a, v: a.after.remote(0, v), "fast")
    say(pool.get_next_unordered(), pool.get_next_unordered())
    pool.submit(lambda a, v: a.after.remote(0.5, v), "slow")
    pool.submit(lambda a, v: a.after.remote(0, v), "fast")
    say(pool.get_next(), pool.get_next())
    pool.submit(double, 1)
    pool.submit(double, 2)
    pool.get_next_unordered()
    outcome(pool.get_next, words=["not allowed"])


@program
def actors_of_a_pool():
    first, second = Worker.remote(), Worker.remote()
    pool = ActorPool([first])
    say(pool.pop_idle() == first, pool.pop_idle(), pool.has_free())
    say(pool.push(first), pool.push(second), pool.has_free())
    outcome(pool.push, first, words=["already belongs to current ActorPool"])
    say(list(pool.map(double, [1, 2])))
    empty = ActorPool([])
    say(empty.has_free(), empty.pop_idle())
    empty.submit(double, 1)
    say(empty.has_next())
    empty.push(Worker.remote())
    say(empty.get_next())


def square(x):
    return x * x


def add(a, b=0):
    return a + b


def fail_on_three(x):
    if x == 3:
        raise ValueError("three")
    return x


@program
def a_process_pool():
    with Pool(2) as pool:
        say(pool.map(square, range(5)), pool.map(square, [], chunksize=2))
        say(pool.starmap(add, [(1, 2), (3,)]), pool.apply(add, (1,), {"b": 5}))
        say(list(pool.imap(square, range(4))), sorted(pool.imap_unordered(square, range(4), 2)))
        say(pool.apply(square, [3]), pool.map(lambda x: x + 1, (1, 2)))


@program
def results_of_a_process_pool():
    pool = Pool(2)
    result = pool.apply_async(add, (1, 2))
    say(result.get(timeout=20), result.ready(), result.successful())
    bad = pool.apply_async(fail_on_three, (3,))
    outcome(bad.get, 20)
    say(bad.ready(), bad.successful())
    slow = pool.apply_async(time.sleep, (1,))
    outcome(slow.get, 0.01)
    outcome(slow.successful, words=["not ready"])
    slow.wait()
    say(slow.ready())
    many = pool.map_async(square, range(3))
    say(many.get(), many.successful())
    outcome(pool.map, fail_on_three, [1, 2, 3, 4])
    pool.terminate()


@program
def callbacks_of_a_process_pool():
    pool = Pool(1)
    seen = []
    pool.apply_async(add, (1, 2), callback=seen.append).wait()
    pool.apply_async(fail_on_three, (3,), error_callback=lambda e: seen.append(str(e)[-5:])).wait()
    pool.map_async(square, [1, 2], callback=seen.append).wait()
    deadline = time.monotonic() + 10
    while len(seen) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    say(len(seen), seen[0], seen[2])
    pool.close()
    pool.join()


@program
def imap_gives_what_is_there():
    pool = Pool(1)
    items = pool.imap(fail_on_three, [1, 3, 5])
    say(next(items))
    outcome(next, items)
    outcome(next, items)
    outcome(next, items)
    items = pool.imap(time.sleep, [0.5])
    outcome(items.next, timeout=0.01)
    say(items.next(timeout=20))
    pool.terminate()


@program
def ends_of_a_process_pool():
    pool = Pool(1)
    outcome(pool.join, words=["Pool is still running"])
    pool.close()
    outcome(pool.map, square, [1], words=["Pool not running"])
    outcome(pool.apply_async, square, (1,), words=["Pool not running"])
    pool.join()
    other = Pool(1)
    other.terminate()
    outcome(other.apply, square, (1,))
    other.join()
    outcome(Pool, 0)
    outcome(Pool, -1, words=["must be > 0"])
    outcome(lambda: Pool(1, initializer=5))


def initialize(value):
    os.environ["PEER_POOL"] = value


def initialized(_):
    return os.environ.get("PEER_POOL")


@program
def initializers_of_a_process_pool():
    with Pool(2, initializer=initialize, initargs=("here",)) as pool:
        say(pool.map(initialized, range(4), chunksize=1))


@program
def arguments_of_a_process_pool():
    pool = Pool(processes=1, maxtasksperchild=2)
    say(len(set(pool.map(lambda _: os.getpid(), range(4), chunksize=1))) > 1)
    outcome(pool.map, square, 5)
    outcome(pool.starmap, add, [1])
    outcome(pool.map, 5, [1])
    pool.terminate()
    outcome(lambda: multiprocessing.TimeoutError is ray.util.multiprocessing.TimeoutError)


if __name__ == "__main__":
    main()
