# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How actors end: kill, exit_actor, errors of constructors, the last handle; and restart."""

import os
import sys
import tempfile
import threading
import time

import ray
from program import eventually, main, outcome, program, say


@ray.remote(num_cpus=0)
class Worker:
    def __init__(self, notes=None):
        self.notes = notes
        self.count = 0

    def pid(self):
        return os.getpid()

    def add(self):
        self.count += 1
        return self.count

    def leave(self):
        ray.actor.exit_actor()

    def sys_exit(self, status):
        sys.exit(status)

    def crash(self):
        os._exit(3)

    def raises(self):
        raise ValueError("of the method")

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
def killed():
    worker = Worker.remote()
    ray.get(worker.add.remote())
    say(ray.kill(worker))
    error = outcome(
        ray.get,
        worker.add.remote(),
        words=["The actor is dead because", "killed by `ray.kill`", "The actor died unexpectedly"],
    )
    say(worker._actor_id.hex() in str(error), "Worker" in str(error))
    say(error.actor_id == worker._actor_id.hex(), error.actor_init_failed, error.preempted)
    say(ray.kill(worker))


@program
def wrong_values_of_kill():
    outcome(ray.kill, 5, words=["ray.kill() only supported for actors"])
    outcome(ray.kill, ray.put(1), words=["ray.kill() only supported for actors"])
    outcome(ray.kill, None)
    outcome(ray.kill, Worker)
    outcome(ray.kill)
    worker = Worker.remote()
    outcome(lambda: ray.kill(worker, False))
    say(ray.kill(worker, no_restart=True))


@program
def killed_while_a_call_runs():
    worker = Worker.remote()
    ray.get(worker.add.remote())
    running, queued = worker.sleep.remote(30), worker.add.remote()
    time.sleep(0.3)
    ray.kill(worker)
    outcome(ray.get, running, timeout=20)
    outcome(ray.get, queued, timeout=20)


@program
def exit_actor_in_a_method():
    worker = Worker.remote()
    ray.get(worker.add.remote())
    left, behind = worker.leave.remote(), worker.add.remote()
    error = outcome(ray.get, left, words=["exit_actor()", "The actor is dead because"])
    say(worker._actor_id.hex() in str(error), error.actor_init_failed)
    outcome(ray.get, behind)
    outcome(ray.get, worker.add.remote())


@program
def exit_actor_is_not_caught():
    @ray.remote(num_cpus=0)
    class Catches:
        def leave(self):
            try:
                ray.actor.exit_actor()
            except Exception:
                return "caught"

        def ok(self):
            return 1

    catches = Catches.remote()
    outcome(ray.get, catches.leave.remote())
    outcome(ray.get, catches.ok.remote())


@program
def exit_actor_outside_of_actors():
    outcome(ray.actor.exit_actor, words=["exit_actor API is called on a non-actor worker"])

    @ray.remote
    def task():
        ray.actor.exit_actor()

    outcome(ray.get, task.remote(), words=["exit_actor API is called on a non-actor worker"])


@program
def exit_actor_in_the_constructor():
    @ray.remote(num_cpus=0)
    class Leaves:
        def __init__(self):
            ray.actor.exit_actor()

        def f(self):
            return 1

    error = outcome(ray.get, Leaves.remote().f.remote(), words=["exit_actor()"])
    say(error.actor_init_failed)


@program
def exit_actor_in_async_actors():
    @ray.remote(num_cpus=0)
    class Async:
        async def f(self):
            return 1

        async def leave(self):
            await self.nested()

        async def nested(self):
            ray.actor.exit_actor()

    one = Async.remote()
    say(ray.get(one.f.remote()))
    outcome(ray.get, one.leave.remote(), words=["The actor is dead because"])
    outcome(ray.get, one.f.remote())


@program
def exit_actor_in_a_thread_of_a_threaded_actor():
    @ray.remote(num_cpus=0, max_concurrency=2)
    class Threaded:
        def f(self):
            return 1

        def leave(self):
            ray.actor.exit_actor()

    one = Threaded.remote()
    say(ray.get(one.f.remote()))
    outcome(ray.get, one.leave.remote(), words=["exit_actor()"])
    outcome(ray.get, one.f.remote())


@program
def exit_actor_does_not_restart():
    worker = Worker.options(max_restarts=3, max_task_retries=3).remote()
    ray.get(worker.add.remote())
    outcome(ray.get, worker.leave.remote())
    outcome(ray.get, worker.add.remote())


@program
def sys_exit_in_methods():
    for status in (0, 1, None, "words"):
        worker = Worker.remote()
        ray.get(worker.add.remote())
        outcome(ray.get, worker.sys_exit.remote(status), words=["The actor is dead because"])
        outcome(ray.get, worker.add.remote())


@program
def sys_exit_with_restarts():
    worker = Worker.options(max_restarts=1).remote()
    say(ray.get(worker.add.remote()))
    outcome(ray.get, worker.sys_exit.remote(1))
    say(ray.get(worker.add.options(max_task_retries=-1).remote()))


@program
def crashes():
    worker = Worker.remote()
    ray.get(worker.add.remote())
    error = outcome(
        ray.get,
        worker.crash.remote(),
        words=["The actor is dead because", "worker process has died"],
    )
    say(worker._actor_id.hex() in str(error))
    outcome(ray.get, worker.add.remote(), words=["The actor is dead because"])


@program
def a_crash_with_restarts():
    worker = Worker.options(max_restarts=1).remote()
    first = ray.get([worker.add.remote(), worker.add.remote(), worker.pid.remote()])
    outcome(ray.get, worker.crash.remote())

    def answers():
        try:
            return ray.get(worker.pid.remote()) != first[2]
        except ray.exceptions.RayActorError:
            return False

    say(eventually(answers), ray.get(worker.add.remote()))
    outcome(ray.get, worker.crash.remote())
    outcome(ray.get, worker.add.remote())


@program
def retried_calls_of_a_restarted_actor():
    path = new_file()

    @ray.remote(num_cpus=0, max_restarts=2, max_task_retries=2)
    class Once:
        def __init__(self):
            note(path, "made")

        def crash_twice(self):
            note(path, "called")
            if len(notes(path)) < 6:
                os._exit(1)
            return notes(path)

    say(ray.get(Once.remote().crash_twice.remote()))


@program
def too_few_retries():
    worker = Worker.options(max_restarts=-1, max_task_retries=1).remote()
    outcome(ray.get, worker.crash.remote())
    say(ray.get(worker.add.remote()))


@program
def kill_with_restarts():
    worker = Worker.options(max_restarts=1, max_task_retries=-1).remote()
    pid = ray.get(worker.pid.remote())
    say(ray.get(worker.add.remote()), ray.get(worker.add.remote()))
    ray.kill(worker, no_restart=False)
    say(eventually(lambda: ray.get(worker.pid.remote()) != pid))
    say(ray.get(worker.add.remote()))
    ray.kill(worker)
    outcome(ray.get, worker.add.remote())


@program
def was_it_restarted():
    @ray.remote(num_cpus=0, max_restarts=1, max_task_retries=-1)
    class Asks:
        def was(self):
            return os.getpid(), ray.get_runtime_context().was_current_actor_reconstructed

    asks = Asks.remote()
    pid, was = ray.get(asks.was.remote())
    say(was)
    ray.kill(asks, no_restart=False)
    say(eventually(lambda: ray.get(asks.was.remote())[0] != pid))
    say(ray.get(asks.was.remote())[1])


@program
def constructor_errors():
    @ray.remote(num_cpus=0)
    class Fails:
        def __init__(self):
            raise KeyError("of the constructor")

        def f(self):
            return 1

    fails = Fails.remote()
    error = outcome(
        ray.get,
        fails.f.remote(),
        words=["of the constructor", "creation task", "KeyError", "Fails.__init__"],
    )
    say(error.actor_init_failed, error.actor_id == fails._actor_id.hex())
    outcome(ray.get, fails.f.remote(), words=["of the constructor"])
    outcome(ray.get, fails.__ray_ready__.remote(), words=["of the constructor"])


@program
def constructor_errors_are_not_restarted():
    path = new_file()

    @ray.remote(num_cpus=0, max_restarts=3)
    class Fails:
        def __init__(self):
            note(path, "tried")
            raise ValueError("no")

        def f(self):
            return 1

    outcome(ray.get, Fails.remote().f.remote())
    say(notes(path))


@program
def constructors_whose_argument_failed():
    @ray.remote
    def bad():
        raise ZeroDivisionError("the argument")

    error = outcome(ray.get, Worker.remote(bad.remote()).add.remote(), words=["the argument"])
    say(error.actor_init_failed)


@program
def method_errors_do_not_end_the_actor():
    worker = Worker.remote()
    outcome(
        ray.get,
        worker.raises.remote(),
        words=["of the method", "ray::Worker.raises()", "actor_id="],
    )
    say(ray.get(worker.add.remote()))


@program
def too_many_pending_calls():
    worker = Worker.options(max_pending_calls=2).remote()
    ray.get(worker.add.remote())
    refs = [worker.sleep.remote(0.4) for _ in range(2)]
    outcome(worker.add.remote, words=["max_pending_calls", "2"])
    say(ray.get(refs))
    say(ray.get(worker.add.remote()))


@program
def errors_travel():
    import pickle

    worker = Worker.remote()
    ray.kill(worker)
    error = outcome(ray.get, worker.add.remote())
    again = pickle.loads(pickle.dumps(error))
    say(type(again).__name__, str(again) == str(error), again.actor_id == error.actor_id)

    @ray.remote
    def inner(dead):
        return ray.get(dead[0].add.remote())

    outcome(ray.get, inner.remote([worker]), words=["The actor is dead because"])


@program
def a_dead_actor_is_ready():
    worker = Worker.remote()
    ray.kill(worker)
    ref = worker.add.remote()
    ready, left = ray.wait([ref], timeout=10)
    say(len(ready), len(left))


@program
def handles_in_threads():
    worker = Worker.remote()
    got = []

    def call():
        got.append(ray.get(worker.add.remote()))

    threads = [threading.Thread(target=call) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(sorted(got))


if __name__ == "__main__":
    main()
