# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Actors: state, order, names, handles, ends."""

import abc
import asyncio
import atexit
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest
import sheaf
from conftest import WAIT_S, stop, wait_until

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote(num_cpus=0)
class Counter:
    """Counts."""

    def __init__(self, start=0):
        self.value = start

    def add(self, n=1):
        self.value += n
        return self.value

    def fail(self):
        raise KeyError("no")

    @sheaf.method(num_returns=2)
    def both(self):
        return self.value, -self.value

    @staticmethod
    def plain(x):
        return x


def test_calls_of_one_caller_run_in_order():
    counter = Counter.remote(10)
    assert sheaf.get([counter.add.remote() for _ in range(500)]) == list(range(11, 511))


def test_methods_with_options_and_static_ones():
    counter = Counter.remote(3)
    assert sheaf.get(counter.both.remote()) == [3, -3]
    assert sheaf.get(counter.plain.remote(5)) == 5
    assert sheaf.get(counter.add.remote(n=2)) == 5


def test_an_error_of_a_method_leaves_the_actor_alive():
    counter = Counter.remote()
    with pytest.raises(KeyError):
        sheaf.get(counter.fail.remote())
    assert sheaf.get(counter.add.remote()) == 1


def test_handles_travel():
    @sheaf.remote
    def work(handle, handles):
        return sheaf.get([handle.add.remote(2), handles["x"].add.remote(3)])

    counter = Counter.remote()
    assert sorted(sheaf.get(work.remote(counter, {"x": counter}))) == [2, 5]


def test_a_function_may_use_a_handle_of_its_surroundings():
    counter = Counter.remote()

    @sheaf.remote
    def bump():
        return sheaf.get(counter.add.remote())

    assert sheaf.get([bump.remote() for _ in range(3)]) and sheaf.get(counter.add.remote(0)) == 3


def test_what_does_not_exist_is_refused_with_a_hint():
    counter = Counter.remote()
    with pytest.raises(AttributeError, match="did you mean add"):
        counter.ad
    with pytest.raises(TypeError, match="Counter.add"):
        counter.add.remote(1, 2)
    with pytest.raises(TypeError, match="Counter"):
        Counter.remote(1, 2)
    with pytest.raises(TypeError, match=r"Counter\.remote\(\)"):
        Counter()
    with pytest.raises(TypeError, match=r"add\.remote\(\)"):
        counter.add()


def test_a_named_actor_is_found_until_it_is_killed():
    first = Counter.options(name="named").remote(5)
    assert sheaf.get(sheaf.get_actor("named").add.remote()) == 6
    with pytest.raises(ValueError):
        Counter.options(name="named").remote()
    same = Counter.options(name="named", get_if_exists=True).remote(99)
    assert sheaf.get(same.add.remote(0)) == 6
    assert "named" in sheaf.util.list_named_actors()
    sheaf.kill(first)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            sheaf.get_actor("named")
        except ValueError:
            return
        time.sleep(0.02)
    raise AssertionError("a killed actor kept its name")


def at_once(count, run):
    """What the threads' calls of `run` give, which begin together."""
    begin = threading.Barrier(count)
    given = []

    def one():
        begin.wait()
        try:
            given.append(run())
        except Exception as error:
            given.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return given


@pytest.mark.parametrize("keep", [True, False])
def test_threads_that_get_or_make_an_actor_of_one_name_at_once_get_one(keep):
    for turn in range(30):
        kept = []

        def get_or_make():
            counter = Counter.options(name=f"one of {turn} {keep}", get_if_exists=True).remote()
            kept.append(counter if keep else None)
            return counter._actor_id, sheaf.get(counter.add.remote(), timeout=WAIT_S)

        given = at_once(16, get_or_make)
        assert not any(isinstance(each, Exception) for each in given), given
        if keep:
            assert len({actor for actor, _ in given}) == 1
            assert sorted(count for _, count in given) == list(range(1, 17))


GET_OR_MAKE = """
import json, sys, threading, sheaf

sheaf.init(address=sys.argv[1], namespace="shared", log_to_driver=False)

@sheaf.remote(num_cpus=0)
class Keeper:
    def who(self):
        import os
        return os.getpid()

def get_or_make(name, kept):
    keeper = Keeper.options(name=name, get_if_exists=True).remote()
    kept.append(keeper)
    return sheaf.get(keeper.who.remote(), timeout=60)

def run(threads, rounds, keep):
    given, kept = [], []
    def one():
        for turn in range(rounds):
            if not keep:
                kept.clear()
            given.append(get_or_make(f"kept {turn}" if keep else "dropped", kept))
    all = [threading.Thread(target=one) for _ in range(threads)]
    for thread in all:
        thread.start()
    for thread in all:
        thread.join()
    assert len(given) == threads * rounds, "a thread failed"
    print(json.dumps(sorted(set(given))), flush=True)
    sys.stdin.readline()  # Until both have theirs.

print("ready", flush=True)
sys.stdin.readline()
run(4, 10, True)
run(2, 40, False)
"""


def test_two_drivers_that_get_or_make_actors_of_the_same_names_get_the_same(node):
    session = sheaf.get_runtime_context().gcs_address
    command = [sys.executable, "-c", GET_OR_MAKE, session]
    drivers = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]

    def step():
        for driver in drivers:
            driver.stdin.write("go on\n")
            driver.stdin.flush()
        return [driver.stdout.readline() for driver in drivers]

    try:
        assert [driver.stdout.readline() for driver in drivers] == ["ready\n"] * 2
        first, second = step()
        assert json.loads(first) == json.loads(second) and len(json.loads(first)) == 10
        assert all(step()), "actors that end just when another driver finds them"
        for driver in drivers:
            _, errors = driver.communicate("done\n", timeout=WAIT_S)
            assert driver.returncode == 0 and "Error" not in errors, errors
    finally:
        for driver in drivers:
            driver.kill()


@pytest.mark.parametrize(
    "wrong, error", [(None, ValueError), ("", ValueError), (5, TypeError), (b"named", TypeError)]
)
def test_a_name_that_is_none_is_refused_with_it(node, wrong, error):
    with pytest.raises(error, match="name="):
        sheaf.get_actor(wrong)


def test_calls_after_kill_fail():
    counter = Counter.remote()
    sheaf.get(counter.add.remote())
    sheaf.kill(counter)
    with pytest.raises(sheaf.exceptions.ActorDiedError):
        sheaf.get(counter.add.remote(), timeout=WAIT_S)


def test_calls_after_kill_fail_though_the_actors_maker_stands_still():
    @sheaf.remote(num_cpus=0)
    class Maker:
        def make(self):
            self.made = Counter.options(num_cpus=0).remote()
            sheaf.get(self.made.add.remote())
            return os.getpid(), self.made

    maker = Maker.remote()
    pid, made = sheaf.get(maker.make.remote(), timeout=WAIT_S)
    assert sheaf.get(made.add.remote(), timeout=WAIT_S) == 2
    stop(pid)  # It passes the kill on when it runs again.
    try:
        sheaf.kill(made)
        with pytest.raises(sheaf.exceptions.ActorDiedError, match="kill was called"):
            sheaf.get(made.add.remote(), timeout=WAIT_S)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_an_actor_without_handles_ends():
    @sheaf.remote(num_cpus=0, resources={"slot": 2})
    class Holder:
        def ready(self):
            return True

    for _ in range(3):  # Each needs what the one before held.
        holder = Holder.remote()
        assert sheaf.get(holder.ready.remote(), timeout=WAIT_S)
        del holder


def test_three_hundred_calls_that_wait_for_one_another():
    @sheaf.remote(num_cpus=0, max_concurrency=300)
    class Together:
        def __init__(self):
            self.barrier = threading.Barrier(300)

        def meet(self):
            self.barrier.wait(WAIT_S)
            return True

    together = Together.remote()
    assert all(sheaf.get([together.meet.remote() for _ in range(300)], timeout=2 * WAIT_S))


def test_threads_of_an_actor_meet():
    @sheaf.remote(num_cpus=0, max_concurrency=4)
    class Threads:
        def __init__(self):
            self.barrier = threading.Barrier(4)

        def meet(self):
            return self.barrier.wait(timeout=WAIT_S) >= 0

    threads = Threads.remote()
    assert all(sheaf.get([threads.meet.remote() for _ in range(8)]))


def test_a_concurrency_group_that_the_actor_does_not_have_is_named():
    class Grouped:
        @sheaf.method(concurrency_group="io")
        def ping(self):
            return 1

    with pytest.raises(ValueError, match="ping wants the concurrency group 'io'.*it has none"):
        sheaf.remote(num_cpus=0)(Grouped).remote()
    actor = sheaf.remote(num_cpus=0, concurrency_groups={"io": 1})(Grouped).remote()
    with pytest.raises(ValueError, match="no concurrency group 'nosuch'; it has io"):
        sheaf.get(actor.ping.options(concurrency_group="nosuch").remote(), timeout=WAIT_S)
    assert sheaf.get(actor.ping.remote(), timeout=WAIT_S) == 1


def test_concurrency_groups_do_not_wait_for_each_other():
    @sheaf.remote(num_cpus=0, concurrency_groups={"io": 1, "work": 1})
    class Groups:
        def __init__(self):
            self.event = threading.Event()

        @sheaf.method(concurrency_group="work")
        def wait(self):
            return self.event.wait(WAIT_S)

        @sheaf.method(concurrency_group="io")
        def open(self):
            self.event.set()

    groups = Groups.remote()
    waiting = groups.wait.remote()
    sheaf.get(groups.open.remote(), timeout=WAIT_S)
    assert sheaf.get(waiting)


def test_a_failed_constructor_is_told_by_calls():
    @sheaf.remote(num_cpus=0)
    class Broken:
        def __init__(self):
            raise RuntimeError("no luck")

        def call(self):
            return 1

    with pytest.raises(sheaf.exceptions.ActorDiedError, match="no luck") as caught:
        sheaf.get(Broken.remote().call.remote(), timeout=WAIT_S)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert isinstance(caught.value.cause, RuntimeError)

    @sheaf.remote(num_cpus=0)
    def ask(handle):
        try:
            sheaf.get(handle.call.remote())
        except sheaf.exceptions.ActorDiedError as error:
            return isinstance(error.cause, RuntimeError)

    broken = Broken.remote()
    sheaf.wait([broken.call.remote()], timeout=WAIT_S)
    assert sheaf.get(ask.remote(broken), timeout=WAIT_S)  # Who asks late hears it whole too.


def test_exit_actor_ends_it_for_good():
    @sheaf.remote(num_cpus=0, max_restarts=5)
    class Leaver:
        def leave(self):
            sheaf.actor.exit_actor()

        def here(self):
            return True

    leaver = Leaver.remote()
    assert sheaf.get(leaver.here.remote())
    with pytest.raises(sheaf.exceptions.ActorDiedError):
        sheaf.get(leaver.leave.remote(), timeout=WAIT_S)
    with pytest.raises(sheaf.exceptions.ActorDiedError):
        sheaf.get(leaver.here.remote(), timeout=WAIT_S)
    with pytest.raises(TypeError):
        sheaf.actor.exit_actor()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_actor_that_is_told_to_end_runs_its_exit_functions(kind, tmp_path):
    class Sync:
        def __init__(self, path):
            atexit.register(path.write_text, "bye")

    class Async(Sync):
        async def method(self):
            pass

    actor = sheaf.remote(num_cpus=0)({"sync": Sync, "async": Async}[kind]).remote(tmp_path / "left")
    with pytest.raises(sheaf.exceptions.ActorDiedError):
        sheaf.get(actor.__ray_terminate__.remote(), timeout=WAIT_S)
    wait_until(lambda: (tmp_path / "left").exists() and (tmp_path / "left").read_text())


def test_built_in_methods():
    counter = Counter.remote(4)
    assert sheaf.get(counter.__ray_ready__.remote())
    assert sheaf.get(counter.__ray_call__.remote(lambda self, n: self.value + n, 2)) == 6


def test_an_actor_pool_shares_work():
    pool = sheaf.util.ActorPool([Counter.remote(i) for i in range(2)])
    assert sorted(pool.map(lambda a, v: a.add.remote(v), [10, 10])) == [10, 11]
    assert sorted(pool.map_unordered(lambda a, v: a.plain.remote(v), range(20))) == list(range(20))


def test_a_queue_carries_items():
    queue = sheaf.util.Queue(maxsize=2)
    queue.put(1)
    queue.put("b")
    with pytest.raises(sheaf.util.queue.Full):
        queue.put_nowait(3)
    assert [queue.get(), queue.get(timeout=5)] == [1, "b"]
    with pytest.raises(sheaf.util.queue.Empty):
        queue.get(timeout=0.01)


def test_a_task_finds_a_named_actor():
    counter = Counter.options(name="wanted").remote(7)

    @sheaf.remote
    def find():
        return sheaf.get(sheaf.get_actor("wanted").add.remote())

    assert sheaf.get(find.remote(), timeout=WAIT_S) == 8
    assert sheaf.get(counter.add.remote(0)) == 8


def test_an_actor_that_a_task_made_is_used_by_others():
    @sheaf.remote(num_cpus=0)
    def make():
        return Counter.remote(3)

    counter = sheaf.get(make.remote(), timeout=WAIT_S)
    assert sheaf.get(counter.add.remote(), timeout=WAIT_S) == 4


def test_a_call_that_an_actor_had_not_started_runs_in_its_next_process(tmp_path):
    """Though it has no retries, and another caller was far ahead of it."""

    @sheaf.remote(max_restarts=1)
    class Mortal:
        def count(self, n):
            return n

        def die_when(self, path):
            while not path.exists():
                time.sleep(0.01)
            time.sleep(0.2)  # What was sent before `path` was made comes meanwhile.
            os.kill(os.getpid(), signal.SIGKILL)

    @sheaf.remote(num_cpus=0)
    def call(actor, path):
        results = [actor.count.remote(n) for n in range(3)]
        sheaf.wait(results, num_returns=3, timeout=0.2)
        path.touch()
        return sheaf.get(results, timeout=WAIT_S)

    actor = Mortal.remote()
    assert sheaf.get([actor.count.remote(n) for n in range(100)], timeout=WAIT_S) == list(
        range(100)
    )
    dying = actor.die_when.remote(tmp_path / "go")
    assert sheaf.get(call.remote(actor, tmp_path / "go"), timeout=WAIT_S) == [0, 1, 2]
    with pytest.raises(sheaf.exceptions.ActorUnavailableError):
        sheaf.get(dying, timeout=WAIT_S)


def test_a_detached_actor_travels_and_is_killed():
    detached = Counter.options(name="detached", lifetime="detached").remote(1)

    @sheaf.remote(num_cpus=0)
    def use(handle):
        return sheaf.get(handle.add.remote())

    assert sheaf.get(use.remote(detached), timeout=WAIT_S) == 2
    sheaf.kill(detached)


@pytest.mark.parametrize("lifetime", [None, "detached"])
def test_a_name_is_free_when_its_actor_has_been_killed(lifetime):
    @sheaf.remote(num_cpus=0)
    def killed(actor):
        sheaf.kill(actor)

    for i in range(30):
        actor = Counter.options(name="one after the other", lifetime=lifetime).remote(i)
        with pytest.raises(ValueError, match="taken"):
            Counter.options(name="one after the other").remote()
        if i % 2 == 0:
            sheaf.kill(actor)
        else:  # By a process that did not make it.
            sheaf.get(killed.remote(actor), timeout=WAIT_S)
    for i in range(10):  # Of both kinds by turns.
        actor = Counter.options(
            name="one after the other", lifetime="detached" if i % 2 else lifetime
        ).remote(i)
        sheaf.kill(actor)
    if lifetime is None:
        with pytest.raises(ValueError, match="Failed to look up actor"):
            actor = Counter.options(name="killed").remote()
            sheaf.kill(actor)
            sheaf.get_actor("killed")


class CallsItself:
    """By handle, by name, by its own context; its streams, and what it must not keep."""

    def __init__(self, name=None):
        self.name = name

    async def same(self, value):
        return value

    async def by_handle(self, handle, value):
        return await handle.same.remote(value)

    async def by_name(self, value):
        return await sheaf.get_actor(self.name).same.remote(value)

    async def by_context(self, value):
        return await sheaf.get_runtime_context().current_actor.same.remote(value)

    async def at_once(self, handle, count):
        refs = [handle.same.remote(i) for i in range(count)]
        return sum([await ref for ref in refs])

    async def fail(self):
        raise KeyError("mine")

    async def catches(self, handle):
        try:
            await handle.fail.remote()
        except KeyError as error:
            return str(error.args[0])

    async def items(self, count, size):
        for i in range(count):
            yield bytes([i % 256]) * size

    async def reads_items(self, handle, count, size):
        total = 0
        async for ref in handle.items.options(num_returns="streaming").remote(count, size):
            total += len(await ref)
        return total

    async def cancels(self, handle):
        ref = handle.sleep.remote()
        await asyncio.sleep(0.05)
        sheaf.cancel(ref)
        try:
            await ref
        except (sheaf.exceptions.TaskCancelledError, asyncio.CancelledError):
            return "cancelled"

    async def sleep(self):
        await asyncio.sleep(60)


@pytest.mark.parametrize("size", [1, 200_000, 3 << 20])
def test_an_async_actor_calls_itself(size):
    actor = (
        sheaf.remote(num_cpus=0)(CallsItself)
        .options(name=f"itself {size}")
        .remote(f"itself {size}")
    )
    value = b"v" * size
    for _ in range(2):  # Before and after the caller knows where the actor is.
        assert sheaf.get(actor.by_handle.remote(actor, value), timeout=30) == value
        assert sheaf.get(actor.by_name.remote(value), timeout=30) == value
        assert sheaf.get(actor.by_context.remote(value), timeout=30) == value
    assert sheaf.get(actor.at_once.remote(actor, 500), timeout=30) == sum(range(500))
    assert sheaf.get(actor.catches.remote(actor), timeout=30) == "mine"
    assert sheaf.get(actor.reads_items.remote(actor, 20, size), timeout=60) == 20 * size
    assert sheaf.get(actor.cancels.remote(actor), timeout=30) == "cancelled"


def test_an_actor_of_threads_or_groups_calls_itself():
    @sheaf.remote(num_cpus=0)
    class Threaded:
        def same(self, value):
            return value

        def deep(self, handle, depth):
            return 0 if depth == 0 else 1 + sheaf.get(handle.deep.remote(handle, depth - 1))

        @sheaf.method(concurrency_group="io")
        def grouped(self, handle, value):
            return sheaf.get(handle.same.remote(value))

    threaded = Threaded.options(max_concurrency=5, concurrency_groups={"io": 1}).remote()
    assert sheaf.get(threaded.deep.remote(threaded, 4), timeout=30) == 4
    grouped = Threaded.options(concurrency_groups={"io": 2}).remote()
    calls = [grouped.grouped.remote(grouped, i) for i in range(100)]
    assert sheaf.get(calls, timeout=30) == list(range(100))


def test_an_actor_makes_more_calls_of_itself_than_another_could_have_pending():
    """Nobody but its one thread could answer them while it makes them."""

    @sheaf.remote(num_cpus=0)
    class Plain:
        def step(self, value):
            return value

        def start(self, handle, count, size):
            refs = [handle.step.remote(bytes(size)) for _ in range(count)]
            return [refs[-1]]

    actor = Plain.remote()
    for count, size in ((120_000, 1), (1200, 60_000)):
        [last] = sheaf.get(actor.start.remote(actor, count, size), timeout=WAIT_S)
        assert sheaf.get(last, timeout=WAIT_S) == bytes(size)


def test_a_plain_actor_returns_a_call_of_itself():
    @sheaf.remote(num_cpus=0)
    class Plain:
        def ping(self, value):
            return value

        def later(self, handle):
            return [handle.ping.remote(sheaf.put(i)) for i in range(50)]

        def stuck(self, handle):
            try:
                return sheaf.get(handle.ping.remote(1), timeout=0.2)
            except sheaf.exceptions.GetTimeoutError:
                return "would wait for itself"

    actor = Plain.remote()
    refs = sheaf.get(actor.later.remote(actor), timeout=30)
    assert sheaf.get(refs, timeout=30) == list(range(50))
    assert sheaf.get(actor.stuck.remote(actor), timeout=30) == "would wait for itself"
    assert sheaf.get(actor.ping.remote(2), timeout=30) == 2


def test_an_actor_that_calls_itself_is_restarted_and_ends_as_others_do():
    @sheaf.remote(num_cpus=0, max_restarts=1)
    class Caller:
        async def ping(self):
            return os.getpid()

        async def me(self, handle):
            return await handle.ping.remote()

        async def crash(self):
            os._exit(1)

    actor = Caller.remote()
    before = sheaf.get(actor.me.remote(actor), timeout=30)
    with pytest.raises(sheaf.exceptions.RayActorError):
        sheaf.get(actor.crash.remote(), timeout=30)
    after = sheaf.get(actor.me.remote(actor), timeout=30)
    assert after != before
    sheaf.kill(actor)
    with pytest.raises(sheaf.exceptions.RayActorError):
        sheaf.get(actor.me.remote(actor), timeout=30)


class Shaped:
    def __getitem__(self, key):
        return key

    def plain(self):
        return 1


def test_handles_have_the_methods_of_the_class_and_those_of_every_actor():
    handle = sheaf.remote(num_cpus=0)(Shaped).remote()
    assert sheaf.get(handle.__getitem__.remote("k")) == "k"
    assert sorted(n for n in dir(handle) if n[0] != "_") == ["plain"]
    assert {"__getitem__", "__ray_ready__", "__ray_call__", "__init__"} < set(dir(handle))
    with pytest.raises(AttributeError, match="has no attribute 'plane'.*did you mean plain"):
        handle.plane
    assert sheaf.get(handle.plain._remote(name="shown")) == 1
    with pytest.raises(TypeError, match="num_cpus"):
        handle.plain.options(num_cpus=1)


def test_actor_classes_are_neither_derived_from_nor_abstract():
    Remote = sheaf.remote(num_cpus=0)(Shaped)
    with pytest.raises(TypeError, match="Inheriting from actor classes is not currently supported"):

        class Derived(Remote):
            pass

    assert Remote.__ray_metadata__.modified_class is Shaped

    class Abstract(abc.ABC):
        @abc.abstractmethod
        def missing(self):
            pass

    with pytest.raises(TypeError, match="abstract class Abstract: it lacks missing"):
        sheaf.remote(Abstract)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_actor_that_asks_for_its_end_is_shut_down_first(tmp_path, is_async):
    path = tmp_path / "said"

    class Ends:
        def __ray_shutdown__(self):
            path.write_text("shut down")
            raise ValueError("which nobody hears")

        def leave(self):
            sheaf.actor.exit_actor()

    if is_async:

        async def nothing(self):
            pass

        Ends.nothing = nothing
    handle = sheaf.remote(num_cpus=0)(Ends).remote()
    with pytest.raises(
        sheaf.exceptions.ActorDiedError, match="The actor is dead because"
    ) as caught:
        sheaf.get(handle.leave.remote(), timeout=WAIT_S)
    assert caught.value.actor_id == handle._actor_id.hex()
    wait_until(lambda: path.exists() and path.read_text() == "shut down")
