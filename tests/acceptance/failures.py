# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What users see when things go wrong: typed errors, the remote traceback, retries, timeouts,
cancellation."""

import os
import pathlib
import tempfile
import time

from runtime import ray

errors = __import__(f"{ray.__name__}.exceptions", fromlist=["x"])
ray.init(num_cpus=2)
scratch = pathlib.Path(tempfile.mkdtemp())


def expect(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind} raised")


@ray.remote
def divide(a, b):
    return a / b


error = expect(ZeroDivisionError, lambda: ray.get(divide.remote(1, 0)))
assert "divide" in str(error) and "a / b" in str(error)  # says where, in which line
assert isinstance(error, errors.RayTaskError)
expect(
    ZeroDivisionError, lambda: ray.get(divide.remote(divide.remote(1, 0), 2))
)  # through a dependency


@ray.remote
def die_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(1)
    return "second try"


assert ray.get(die_once.remote(str(scratch / "a"))) == "second try"
expect(
    errors.WorkerCrashedError,
    lambda: ray.get(die_once.options(max_retries=0).remote(str(scratch / "b"))),
)


@ray.remote(max_retries=5, retry_exceptions=[OSError])
def flaky(path):
    with open(path, "a") as f:
        f.write("x")
    if os.path.getsize(path) < 4:
        raise OSError("not yet")
    return os.path.getsize(path)


assert ray.get(flaky.remote(str(scratch / "c"))) == 4


@ray.remote
def sleep(seconds):
    for _ in range(int(seconds * 20)):
        time.sleep(0.05)


begin = time.monotonic()
slow = sleep.remote(60)
expect(errors.GetTimeoutError, lambda: ray.get(slow, timeout=0.5))
ray.cancel(slow)
expect(errors.TaskCancelledError, lambda: ray.get(slow, timeout=20))
assert time.monotonic() - begin < 20


@ray.remote(max_restarts=1, max_task_retries=1)
class Fragile:
    def __init__(self):
        self.calls = 0

    def call(self):
        self.calls += 1
        return self.calls

    def pid(self):
        return os.getpid()

    def die(self):
        os._exit(1)


actor = Fragile.remote()
assert ray.get([actor.call.remote() for _ in range(3)]) == [1, 2, 3]
os.kill(ray.get(actor.pid.remote()), 9)
assert ray.get(actor.call.remote(), timeout=60) == 1  # restarted: new state, the call was retried
os.kill(ray.get(actor.pid.remote()), 9)
expect(errors.RayActorError, lambda: ray.get(actor.call.remote(), timeout=60))


@ray.remote
class Broken:
    def __init__(self):
        raise RuntimeError("no luck")

    def call(self):
        return 1


expect(errors.RayActorError, lambda: ray.get(Broken.remote().call.remote()))
expect(ValueError, lambda: ray.get("not a reference"))
expect(TypeError, lambda: divide(1, 2))
expect(ValueError, lambda: ray.remote(num_cpus=-1)(lambda: 1))
expect(ValueError, lambda: ray.get_actor("nobody"))
print("errors are typed, say where, and retries retry")
