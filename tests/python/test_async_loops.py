# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What user code does to the event loop of an async actor: each call is answered all the same."""

import asyncio
import json
import subprocess
import sys
import weakref

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S
from sheaf.exceptions import ActorDiedError

pytestmark = pytest.mark.usefixtures("node")
GROUPS = {"other": 2}


class Actor:
    def __init__(self):
        self.gate = asyncio.Event()

    async def ping(self):
        return "pong"

    async def pause(self):
        await asyncio.sleep(0)

    async def wait(self):
        await self.gate.wait()
        return "open"

    async def open(self):
        self.gate.set()

    async def in_task(self, error):
        async def fail():
            raise error

        self.task = asyncio.get_running_loop().create_task(fail())

    async def in_callback(self, error):
        def fail():
            raise error

        asyncio.get_running_loop().call_soon(fail)

    async def stop(self):
        asyncio.get_running_loop().stop()

    async def close(self):
        loop = asyncio.get_running_loop()
        loop.is_running = lambda: False  # Else it refuses.
        loop.close()

    async def refuse_tasks(self):
        def factory(loop, coroutine, **_):
            raise ArithmeticError("no tasks")

        asyncio.get_running_loop().set_task_factory(factory)

    async def raise_in_hooks(self, name):
        def hook(frame, event, _):
            if frame.f_code.co_name == name and event == "return":
                sys.setprofile(None)
                raise ArithmeticError(f"a hook of {name}")

        sys.setprofile(hook)


Plain = sheaf.remote(num_cpus=0)(Actor)
Grouped = sheaf.remote(num_cpus=0, concurrency_groups=GROUPS)(Actor)
kinds = pytest.mark.parametrize("kind", [Plain, Grouped], ids=["plain", "grouped"])
ways = pytest.mark.parametrize("way", ["in_task", "in_callback"])


@kinds
@ways
def test_an_exception_that_leaves_the_loop_leaves_the_actor_alive(kind, way):
    actor = kind.remote()
    waiting = actor.wait.remote()
    getattr(actor, way).remote(KeyboardInterrupt("of the user's"))
    assert sheaf.get(actor.ping.remote(), timeout=WAIT_S) == "pong"
    actor.open.remote()
    assert sheaf.get(waiting, timeout=WAIT_S) == "open"


@kinds
@ways
@pytest.mark.parametrize("code", [3, None])
def test_sys_exit_beside_the_calls_ends_the_actor(kind, way, code):
    actor = kind.remote()
    waiting = actor.wait.remote()
    getattr(actor, way).remote(SystemExit(code))
    with pytest.raises(ActorDiedError):
        sheaf.get(waiting, timeout=WAIT_S)
    with pytest.raises(ActorDiedError):
        sheaf.get(actor.ping.remote(), timeout=WAIT_S)


@kinds
@ways
def test_sys_exit_0_beside_the_calls_lets_those_end_that_run(kind, way):
    actor = kind.remote()
    sheaf.get(actor.ping.remote(), timeout=WAIT_S)
    waiting = actor.wait.remote()
    opening = actor.open.remote()
    getattr(actor, way).remote(SystemExit(0))
    assert sheaf.get([opening, waiting], timeout=WAIT_S) == [None, "open"]
    with pytest.raises(ActorDiedError):
        while True:  # It ends in a moment.
            sheaf.get(actor.ping.remote(), timeout=WAIT_S)


@kinds
def test_a_loop_that_is_stopped_goes_on(kind):
    actor = kind.remote()
    waiting = actor.wait.remote()
    actor.stop.remote()
    actor.open.remote()
    assert sheaf.get(waiting, timeout=WAIT_S) == "open"


def test_a_loop_that_is_closed_ends_the_actor():
    actor = Plain.remote()
    waiting = actor.wait.remote()
    actor.close.remote()
    with pytest.raises(ActorDiedError):
        sheaf.get(waiting, timeout=WAIT_S)


@kinds
def test_a_task_factory_that_raises_fails_the_calls_that_need_tasks(kind):
    actor = kind.remote()
    sheaf.get(actor.pause.remote(), timeout=WAIT_S)  # From here on it gets a task at once.
    sheaf.get(actor.refuse_tasks.remote(), timeout=WAIT_S)
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="no tasks"):
            sheaf.get(actor.pause.remote(), timeout=WAIT_S)


@pytest.mark.parametrize("name", ["begin", "_resume", "pause", "_start", "select"])
def test_a_hook_that_raises_where_a_call_begins_fails_no_other_call(name):
    actor = Plain.remote()
    waiting = actor.wait.remote()
    sheaf.get(actor.raise_in_hooks.remote(name), timeout=WAIT_S)
    for _ in range(3):
        try:
            sheaf.get(actor.ping.remote(), timeout=WAIT_S)
        except ArithmeticError:
            continue
    actor.open.remote()
    assert sheaf.get(waiting, timeout=WAIT_S) == "open"
    assert sheaf.get(actor.ping.remote(), timeout=WAIT_S) == "pong"


@sheaf.remote(num_cpus=0)
class Holder:
    async def lets_go(self, array):
        known = weakref.ref(array)
        del array
        await asyncio.sleep(0)
        return known() is None


@pytest.mark.parametrize("named", [False, True])
def test_an_argument_that_a_method_lets_go_of_is_free_while_it_waits(named):
    holder = Holder.remote()
    array = np.zeros(1_000_000, np.uint8)
    for _ in range(3):  # The first call, and those of a method that is known to wait.
        call = holder.lets_go.remote(array=array) if named else holder.lets_go.remote(array)
        assert sheaf.get(call, timeout=WAIT_S)


_WAITERS = """
import asyncio, json, os, signal, sys, threading, time
import sheaf

sheaf.init(num_cpus=1, log_to_driver=False)

@sheaf.remote
def slow():
    time.sleep(600)

refs = [slow.remote() for _ in range(4)]
begun = threading.Barrier(6)
said = {}

async def awaits():
    begun.wait()
    try:
        await refs[0]
    except BaseException as error:
        said["awaits"] = type(error).__name__
    await refs[0]  # Again: at once.

async def gathers():
    begun.wait()
    await asyncio.gather(*refs)

async def wraps():
    begun.wait()
    await asyncio.wrap_future(refs[1].future())

def future():
    made = refs[2].future()
    begun.wait()
    made.result()

def gets():
    begun.wait()
    sheaf.get(refs[3])

def run(name, wait):
    try:
        wait()
    except BaseException as error:
        said[name] = type(error).__name__

called = threading.Event()
refs[0].future().add_done_callback(lambda _: called.set())
waits = {
    "again": lambda: asyncio.run(awaits()),
    "gathers": lambda: asyncio.run(gathers()),
    "wraps": lambda: asyncio.run(wraps()),
    "future": future,
    "gets": gets,
}
threads = [threading.Thread(target=run, args=each, daemon=True) for each in waits.items()]
for thread in threads:
    thread.start()
begun.wait()
time.sleep(0.1)
if sys.argv[1] == "shutdown":
    sheaf.shutdown()
else:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    parent = int(stat.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == os.getpid():
                os.kill(int(name), signal.SIGKILL)
for thread in threads:
    thread.join(30)
stand = [thread.name for thread in threads if thread.is_alive()]
anew = sys.argv[1] == "shutdown" and sheaf.is_initialized()
print(json.dumps({"stand": stand, "called": called.wait(30), "anew": anew, "said": said}))
"""


@pytest.mark.parametrize("end", ["shutdown", "death"])
def test_who_awaits_hears_of_the_end_of_the_node(end):
    done = subprocess.run(
        [sys.executable, "-c", _WAITERS, end], capture_output=True, text=True, timeout=3 * WAIT_S
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    said = result.pop("said")
    assert result == {"stand": [], "called": True, "anew": False}
    assert set(said) == {"awaits", "again", "gathers", "wraps", "future", "gets"}
    if end == "death":
        assert set(said.values()) == {"LocalRayletDiedError"}
    else:  # Who looks when all is over hears that the session has ended.
        assert set(said.values()) <= {"RaySystemError", "ValueError"}
