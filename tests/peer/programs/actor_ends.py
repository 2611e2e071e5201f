# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What actors do at their end: __del__, atexit functions, __ray_shutdown__, and the calls before."""

import asyncio
import os
import tempfile
import time

import ray
from program import eventually, main, outcome, program, say


@ray.remote(num_cpus=0)
class Worker:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        return self.count

    def sleep(self, seconds):
        time.sleep(seconds)
        return "slept"


def note(path, word):
    with open(path, "a") as out:
        out.write(word + "\n")


def notes(path):
    with open(path) as file:
        return file.read().split()


def new_file():
    handle, path = tempfile.mkstemp()
    os.close(handle)
    return path


@program
def the_last_handle():
    path = new_file()

    @ray.remote(num_cpus=0)
    class Ends:
        def f(self):
            return os.getpid()

        def __del__(self):
            note(path, "del")

    ends = Ends.remote()
    ray.get(ends.f.remote())
    del ends
    say(eventually(lambda: notes(path) == ["del"]))


@program
def queued_calls_run_before_the_last_handle_ends_the_actor():
    worker = Worker.remote()
    refs = [worker.add.remote() for _ in range(5)] + [worker.sleep.remote(0.2), worker.add.remote()]
    del worker
    say(ray.get(refs))
    say(ray.get(Worker.remote().add.remote()))


@ray.remote(num_cpus=0, max_concurrency=2)
class Threads:
    def run(self, path):
        note(path, "begun")
        left = eventually(lambda: "leaving" in notes(path))
        time.sleep(0.5)  # The end has been asked for meanwhile.
        return left

    def leave(self, path):
        note(path, "leaving")
        ray.actor.exit_actor()


@ray.remote(num_cpus=0)
class Coroutines:
    async def run(self, path):
        note(path, "begun")
        while "leaving" not in notes(path):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        return True

    async def leave(self, path):
        note(path, "leaving")
        ray.actor.exit_actor()


@program
def calls_that_run_at_exit_actor():
    for kind in Threads, Coroutines:
        path = new_file()
        actor = kind.remote()
        runs = actor.run.remote(path)
        say(eventually(lambda path=path: "begun" in notes(path)))
        leaves = actor.leave.remote(path)
        say(ray.get(runs))
        outcome(ray.get, leaves)


@program
def ends_at_exit_actor():
    path = new_file()

    @ray.remote(num_cpus=0)
    class Ends:
        def __init__(self):
            import atexit

            atexit.register(note, path, "atexit")

        def leave(self):
            ray.actor.exit_actor()

        def __ray_shutdown__(self):
            note(path, "shutdown")

    outcome(ray.get, Ends.remote().leave.remote())
    say(eventually(lambda: len(notes(path)) == 2), sorted(notes(path)))


@program
def ends_at_kill():
    path = new_file()

    @ray.remote(num_cpus=0)
    class Ends:
        def __init__(self):
            import atexit

            atexit.register(note, path, "atexit")

        def f(self):
            return 1

        def __ray_shutdown__(self):
            note(path, "shutdown")

    ends = Ends.remote()
    ray.get(ends.f.remote())
    ray.kill(ends)
    outcome(ray.get, ends.f.remote())
    time.sleep(0.5)
    say(notes(path))


@program
def ends_of_the_last_handle():
    path = new_file()

    @ray.remote(num_cpus=0)
    class Ends:
        def __init__(self):
            import atexit

            atexit.register(note, path, "atexit")

        def f(self):
            return 1

        def __ray_shutdown__(self):
            note(path, "shutdown")

    ends = Ends.remote()
    ray.get(ends.f.remote())
    del ends
    say(eventually(lambda: len(notes(path)) == 2), sorted(notes(path)))


@program
def terminated():
    worker = Worker.remote()
    refs = [worker.add.remote() for _ in range(3)]
    end = worker.__ray_terminate__.remote()
    say(ray.get(refs))
    outcome(ray.get, end)
    outcome(ray.get, worker.add.remote(), words=["The actor is dead because", "exit_actor()"])


if __name__ == "__main__":
    main()
