# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Retries of tasks and methods: after exceptions, after crashes, how often, with what at the end."""

import os
import tempfile

import ray
from program import main, outcome, program, say


class Tries:
    """Counts across processes, in a file of its own."""

    def __init__(self):
        self.path = tempfile.mkstemp(prefix="tries-")[1]

    def one_more(self):
        with open(self.path, "a") as file:
            file.write(".")
        return self.count()

    def count(self):
        with open(self.path) as file:
            return len(file.read())


class Mine(Exception):
    pass


class MineToo(Mine):
    pass


@ray.remote
def fails(tries, error, times=100):
    if tries.one_more() <= times:
        raise error
    return "done"


@ray.remote
def crashes(tries, times=100):
    if tries.one_more() <= times:
        os._exit(1)
    return "done"


@ray.remote
class Actor:
    def fails(self, tries, error, times=100):
        if tries.one_more() <= times:
            raise error
        return "done"

    def crashes(self, tries, times=100):
        if tries.one_more() <= times:
            os._exit(1)
        return "done"

    async def fails_later(self, tries, error, times=100):
        if tries.one_more() <= times:
            raise error
        return "done"


@ray.remote
class Plain:
    def fails(self, tries, error, times=100):
        if tries.one_more() <= times:
            raise error
        return "done"

    def crashes(self, tries, times=100):
        if tries.one_more() <= times:
            os._exit(1)
        return "done"


def ends(function, *args):
    """Says how a call ends, and how often it ran."""
    tries = Tries()
    outcome(lambda: ray.get(function.remote(tries, *args)))
    say("ran", tries.count())


@program
def exceptions_are_not_retried_by_default():
    ends(fails, ValueError("x"))
    ends(fails.options(max_retries=5), ValueError("x"))


@program
def all_exceptions():
    ends(fails.options(retry_exceptions=True), ValueError("x"), 2)
    ends(fails.options(retry_exceptions=True), ValueError("x"))
    ends(fails.options(retry_exceptions=True, max_retries=1), ValueError("x"))
    ends(fails.options(retry_exceptions=True, max_retries=0), ValueError("x"))
    ends(fails.options(retry_exceptions=True, max_retries=-1), ValueError("x"), 6)


@program
def some_exceptions():
    only = fails.options(retry_exceptions=[ValueError, Mine], max_retries=2)
    ends(only, ValueError("x"))
    ends(only, Mine("x"), 1)
    ends(only, MineToo("x"), 1)
    ends(only, KeyError("x"))
    ends(fails.options(retry_exceptions=[], max_retries=2), ValueError("x"))
    ends(fails.options(retry_exceptions=(OSError,), max_retries=2), FileNotFoundError("x"))


@program
def retries_in_the_decorator():
    @ray.remote(max_retries=1, retry_exceptions=[Mine])
    def f(tries):
        tries.one_more()
        raise Mine("again")

    ends(f)
    ends(f.options(max_retries=2))
    ends(f.options(retry_exceptions=False))


@program
def crashes_are_retried():
    ends(crashes, 2)
    ends(crashes.options(max_retries=1))
    ends(crashes.options(max_retries=0))


@program
def crashes_and_exceptions_together():
    @ray.remote(max_retries=2, retry_exceptions=True)
    def f(tries):
        if tries.one_more() % 2:
            os._exit(1)
        raise ValueError("even")

    ends(f)

    @ray.remote(max_retries=3, retry_exceptions=True)
    def g(tries):
        if tries.one_more() % 2:
            os._exit(1)
        raise ValueError("even")

    ends(g)


@program
def the_words_of_a_crash():
    words = ["The worker died unexpectedly while executing this task"]
    outcome(lambda: ray.get(crashes.options(max_retries=0).remote(Tries())), words=words)


@program
def exits_of_tasks():
    @ray.remote(max_retries=1)
    def leave(tries, code):
        tries.one_more()
        raise SystemExit(code)

    ends(leave, 1)
    ends(leave, 0)

    @ray.remote(max_retries=0)
    def text(tries):
        tries.one_more()
        raise SystemExit("bye")

    ends(text)


@program
def kinds_beyond_exception():
    @ray.remote(max_retries=1, retry_exceptions=True)
    def interrupted(tries):
        tries.one_more()
        raise KeyboardInterrupt

    ends(interrupted)

    class Odd(BaseException):
        pass

    @ray.remote(max_retries=1, retry_exceptions=True)
    def odd(tries):
        tries.one_more()
        raise Odd("base")

    tries = Tries()
    say(ray.wait([odd.remote(tries)], timeout=5)[1] == [])
    say("ran", tries.count())


@program
def several_returns_are_retried_as_one():
    @ray.remote(num_returns=2, max_retries=2, retry_exceptions=True)
    def f(tries):
        if tries.one_more() < 3:
            raise ValueError
        return 1, 2

    tries = Tries()
    say(ray.get(f.remote(tries)), tries.count())


@program
def streams_are_retried():
    @ray.remote(max_retries=2, retry_exceptions=True)
    def f(tries, times):
        yield "first"
        if tries.one_more() <= times:
            raise ValueError("late")
        yield "second"

    for times in (2, 100):
        tries = Tries()
        for ref in f.remote(tries, times):
            outcome(ray.get, ref)
        say("ran", tries.count())


@program
def streams_are_retried_after_a_crash():
    @ray.remote(max_retries=1)
    def f(tries, times):
        yield "first"
        if tries.one_more() <= times:
            os._exit(1)
        yield "second"

    for times in (1, 100):
        tries = Tries()
        for ref in f.remote(tries, times):
            outcome(ray.get, ref)
        say("ran", tries.count())


@program
def methods_are_not_retried_by_default():
    actor = Plain.remote()
    ends(actor.fails, ValueError("x"))
    ends(actor.fails.options(retry_exceptions=True), ValueError("x"))


@program
def methods_with_retries():
    actor = Plain.options(max_task_retries=2).remote()
    ends(actor.fails, ValueError("x"))
    ends(actor.fails.options(retry_exceptions=True), ValueError("x"))
    ends(actor.fails.options(retry_exceptions=True), ValueError("x"), 2)
    ends(actor.fails.options(retry_exceptions=[KeyError]), ValueError("x"))
    ends(actor.fails.options(retry_exceptions=[ValueError], max_task_retries=1), ValueError("x"))
    ends(actor.fails.options(retry_exceptions=True, max_task_retries=0), ValueError("x"))


@program
def async_methods_with_retries():
    actor = Actor.options(max_task_retries=2).remote()
    ends(actor.fails_later.options(retry_exceptions=True), ValueError("x"), 1)
    ends(actor.fails_later.options(retry_exceptions=[ValueError]), ValueError("x"))
    ends(actor.fails_later.options(retry_exceptions=[KeyError]), ValueError("x"))


@program
def method_decorator_with_retries():
    @ray.remote(max_task_retries=1)
    class A:
        @ray.method(max_task_retries=3, retry_exceptions=[Mine])
        def f(self, tries):
            tries.one_more()
            raise Mine("again")

        @ray.method(retry_exceptions=True)
        def g(self, tries):
            tries.one_more()
            raise Mine("again")

    actor = A.remote()
    ends(actor.f)
    ends(actor.g)
    ends(actor.f.options(max_task_retries=1))


@program
def crashes_of_actors():
    ends(Plain.options(max_restarts=1, max_task_retries=1).remote().crashes, 1)
    ends(Plain.options(max_restarts=1, max_task_retries=0).remote().crashes)
    ends(Plain.options(max_restarts=0, max_task_retries=2).remote().crashes)
    ends(Plain.options(max_restarts=-1, max_task_retries=2).remote().crashes)


@program
def a_task_that_depends_on_a_retried_one():
    @ray.remote
    def after(value):
        return value + "!"

    tries = Tries()
    first = fails.options(retry_exceptions=True).remote(tries, Mine("x"), 2)
    say(ray.get(after.remote(first)), tries.count())


if __name__ == "__main__":
    main()
