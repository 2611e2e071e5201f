# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Actors with async methods."""

import asyncio
import os
import threading
import time

import pytest
import sheaf
from conftest import WAIT_S

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote(num_cpus=0)
class Gate:
    def __init__(self):
        self.event = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    async def wait(self):
        await self.event.wait()
        return "open"

    async def open(self):
        self.event.set()

    def plain(self):
        return asyncio.get_running_loop() is self.loop

    async def fail(self):
        raise KeyError("async")

    async def through(self, ref):
        return await ref[0]

    async def items(self, n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def who(self):
        return sheaf.get_runtime_context().get_task_name()


def test_a_hundred_calls_wait_for_one():
    gate = Gate.remote()
    waiting = [gate.wait.remote() for _ in range(100)]
    assert sheaf.wait(waiting, timeout=0.05)[0] == []
    sheaf.get(gate.open.remote(), timeout=WAIT_S)
    assert sheaf.get(waiting, timeout=WAIT_S) == ["open"] * 100


def test_plain_methods_run_on_the_loop():
    assert sheaf.get(Gate.remote().plain.remote(), timeout=WAIT_S)


def test_errors_references_and_context():
    gate = Gate.remote()
    with pytest.raises(KeyError):
        sheaf.get(gate.fail.remote(), timeout=WAIT_S)
    assert sheaf.get(gate.through.remote([sheaf.put(3)]), timeout=WAIT_S) == 3
    assert sheaf.get(gate.who.remote(), timeout=WAIT_S) == "Gate.who"


def test_an_async_generator_streams():
    items = Gate.remote().items.remote(5)
    assert [sheaf.get(ref) for ref in items] == list(range(5))


def test_a_waiting_call_is_cancelled():
    gate = Gate.remote()
    ref = gate.wait.remote()
    sheaf.get(gate.plain.remote())
    sheaf.cancel(ref)
    with pytest.raises(sheaf.exceptions.TaskCancelledError):
        sheaf.get(ref, timeout=WAIT_S)
    assert sheaf.get(gate.plain.remote(), timeout=WAIT_S)


@sheaf.remote(num_cpus=0)
class Asked:
    """What a coroutine is told of where it runs."""

    def __init__(self):
        self.seen = []

    async def itself(self, waits):
        if waits:
            await asyncio.sleep(0)
        context = sheaf.get_runtime_context()
        return context.current_actor, context.get_actor_id(), context.is_canceled()

    async def wait(self):
        self.seen.append("waits")
        try:
            await asyncio.sleep(10 * WAIT_S)
        finally:
            self.seen.append(sheaf.get_runtime_context().is_canceled())

    async def what(self):
        return self.seen

    async def leave(self):
        await asyncio.sleep(0)
        sheaf.actor.exit_actor()


@pytest.mark.parametrize("waits", [False, True])
def test_a_coroutine_knows_its_actor(waits):
    actor = Asked.remote()
    handle, name, cancelled = sheaf.get(actor.itself.remote(waits), timeout=WAIT_S)
    assert handle == actor and name == actor._actor_id.hex() and not cancelled


def test_a_coroutine_knows_that_it_was_cancelled():
    actor = Asked.remote()
    ref = actor.wait.remote()
    deadline = time.monotonic() + WAIT_S
    while sheaf.get(actor.what.remote(), timeout=WAIT_S) != ["waits"]:
        assert time.monotonic() < deadline
    sheaf.cancel(ref)
    with pytest.raises(sheaf.exceptions.TaskCancelledError):
        sheaf.get(ref, timeout=WAIT_S)
    while sheaf.get(actor.what.remote(), timeout=WAIT_S) != ["waits", True]:
        assert time.monotonic() < deadline


def test_a_coroutine_ends_its_actor():
    actor = Asked.remote()
    with pytest.raises(sheaf.exceptions.ActorDiedError, match="exit_actor"):
        sheaf.get(actor.leave.remote(), timeout=WAIT_S)


def test_the_loop_serves_calls_timers_and_descriptors_at_once():
    @sheaf.remote(num_cpus=0)
    class Busy:
        def __init__(self):
            self.ticks = 0
            self.lines = 0

        async def start(self):
            import os

            async def tick():
                while True:
                    await asyncio.sleep(0.001)
                    self.ticks += 1

            self.tasks = [asyncio.ensure_future(tick())]
            self.read, self.write = os.pipe()
            asyncio.get_running_loop().add_reader(self.read, self.on_line)

        def on_line(self):
            import os

            self.lines += len(os.read(self.read, 100))

        async def write_line(self):
            import os

            os.write(self.write, b"x")

        async def seen(self):
            return self.ticks, self.lines

    busy = Busy.remote()
    sheaf.get(busy.start.remote(), timeout=WAIT_S)
    for _ in range(500):  # Calls come faster than the loop sleeps.
        sheaf.get(busy.write_line.remote(), timeout=WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while (seen := sheaf.get(busy.seen.remote(), timeout=WAIT_S))[1] < 500 or seen[0] < 3:
        assert time.monotonic() < deadline, f"ticks and lines: {seen}"


def test_large_arguments_wait_beside_the_loop():
    import numpy as np

    @sheaf.remote(num_cpus=0)
    class Summer:
        async def sum(self, array):
            return float(array.sum())

    summer = Summer.remote()
    refs = [sheaf.put(np.full(50_000, i, dtype=np.float64)) for i in range(10)]
    assert sheaf.get([summer.sum.remote(ref) for ref in refs], timeout=WAIT_S) == [
        i * 50_000.0 for i in range(10)
    ]


def test_a_coroutine_may_block_in_get():
    @sheaf.remote
    def one():
        return 1

    @sheaf.remote(num_cpus=0)
    class Blocking:
        async def sum(self, n):
            return sum(sheaf.get([one.remote() for _ in range(n)]))

        async def beside(self):
            return await asyncio.get_running_loop().run_in_executor(
                None, lambda: sheaf.get(one.remote())
            )

    actor = Blocking.remote()
    assert sheaf.get(actor.sum.remote(20), timeout=WAIT_S) == 20
    assert sheaf.get([actor.beside.remote() for _ in range(20)], timeout=WAIT_S) == [1] * 20


def test_an_idle_loop_answers_and_ends_with_its_actor():
    gate = Gate.remote()
    for pause in (0, 0.01, 0.15, 0.15):  # Sleeps of the loop, some longer than its main thread's.
        time.sleep(pause)
        assert sheaf.get(gate.plain.remote(), timeout=WAIT_S)


@sheaf.remote(num_cpus=0)
class Sleeper:
    async def hear(self):
        """What a loop that sleeps has to hear besides calls, one after the other."""
        import os
        import threading

        loop = asyncio.get_running_loop()
        for _ in range(3):
            heard = loop.create_future()
            read, write = os.pipe()
            loop.add_reader(read, heard.set_result, None)
            threading.Timer(0.03, os.write, (write, b"x")).start()
            await heard
            loop.remove_reader(read)
            os.close(read)
            os.close(write)
            told = loop.create_future()
            threading.Timer(0.03, loop.call_soon_threadsafe, (told.set_result, None)).start()
            await told
            await asyncio.sleep(0.03)
        return True

    async def naps_of_the_main_thread(self):
        import os

        with open(f"/proc/self/task/{os.getpid()}/status") as status:
            return next(
                int(line.split()[1])
                for line in status
                if line.startswith("voluntary_ctxt_switches")
            )


def test_a_loop_that_sleeps_hears_descriptors_other_threads_and_timers():
    sleeper = Sleeper.remote()
    assert sheaf.get(sleeper.hear.remote(), timeout=WAIT_S)
    assert sheaf.get([sleeper.hear.remote() for _ in range(3)], timeout=WAIT_S) == [True] * 3


def test_a_call_wakes_the_thread_of_the_loop_alone():
    sleeper = Sleeper.remote()
    before = sheaf.get(sleeper.naps_of_the_main_thread.remote(), timeout=WAIT_S)
    for _ in range(200):
        time.sleep(0.001)  # Longer than the loop looks for calls before it sleeps.
        after = sheaf.get(sleeper.naps_of_the_main_thread.remote(), timeout=WAIT_S)
    assert after - before < 100


def test_many_threads_call_at_once():
    import threading

    @sheaf.remote(num_cpus=0)
    class Echo:
        async def echo(self, x):
            return x

    @sheaf.remote(num_cpus=0, max_concurrency=4)
    class Threaded:
        def echo(self, x):
            return x

    @sheaf.remote
    def task(x):
        return x

    calls = [Echo.remote().echo, Threaded.remote().echo, task]
    wrong = []

    def loop(number):
        for i in range(200):
            call = calls[(number + i) % 3]
            if sheaf.get(call.remote((number, i)), timeout=WAIT_S) != (number, i):
                wrong.append((number, i))

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * WAIT_S)
    assert not wrong and not any(thread.is_alive() for thread in threads)


@sheaf.remote(num_cpus=0)
class Tasks:
    """What calls see of asyncio, whether they wait or not; a method's first call is the one that
    may not know yet that it waits."""

    def __init__(self, lends=True):
        import contextvars

        from sheaf._worker import spare_task

        spare_task.LENDS = spare_task.LENDS and lends
        self.variable = contextvars.ContextVar("variable", default=None)
        self.seen = []
        self.event = asyncio.Event()

    async def same_task_after_a_wait(self):
        before = asyncio.current_task()
        await asyncio.sleep(0.001)
        return (
            asyncio.current_task() is before
            and before in asyncio.all_tasks()
            and isinstance(before, asyncio.Task)
        )

    async def keep_task(self):
        self.seen.append(asyncio.current_task())
        return len(set(self.seen))

    async def kept_tasks_are_done(self):
        await asyncio.sleep(0)
        return [task.done() for task in self.seen]

    async def variable_over_a_wait(self, value):
        before = self.variable.get()
        self.variable.set(value)
        await asyncio.sleep(0.001)
        return before, self.variable.get()

    async def set_variable(self, value):
        before = self.variable.get()
        self.variable.set(value)
        return before

    async def time_out(self):
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(1000)
        except TimeoutError:
            return asyncio.current_task().cancelling()

    async def cancel_itself(self):
        asyncio.current_task().cancel()
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return "cancelled"

    async def cancel_itself_and_end(self):
        asyncio.current_task().cancel()
        return "ended"

    async def wait_for_the_others(self):
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others)
        return len(others)

    async def note(self, number, waits):
        self.seen.append(number)
        if waits:
            await self.event.wait()

    async def note_at_once(self, number):
        self.seen.append(number)

    async def all_seen(self):
        self.event.set()
        return self.seen

    async def raise_after_a_wait(self):
        await asyncio.sleep(0)
        raise KeyError("late")

    async def cancel_inner(self):
        async def inner():
            self.seen.append("begun")
            try:
                await asyncio.sleep(1000)
            finally:
                self.seen.append("ended")

        await asyncio.create_task(inner())

    def future(self):
        """What is to be awaited, and is no coroutine."""
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, "set")
        return future

    def object_to_await(self, given):
        class Given:
            def __await__(self):
                yield from asyncio.sleep(0).__await__()
                return given

        return Given()

    def made_by_generator(self):
        import types

        @types.coroutine
        def generator():
            yield
            return "generated"

        return generator()

    def plain_with_many(self, *numbers):
        return sum(numbers)

    async def with_many(self, *numbers):
        return sum(numbers)

    async def raise_stop(self):
        raise StopIteration("never")

    def raise_stop_at_once(self):
        raise StopIteration("at once")

    async def task_name(self):
        return asyncio.current_task().get_name()

    async def where(self):
        first = sheaf.get_runtime_context().get_task_id()
        await asyncio.sleep(0.001)
        return first == sheaf.get_runtime_context().get_task_id(), first


def call(actor, name, *args):
    return sheaf.get(getattr(actor, name).remote(*args), timeout=WAIT_S)


@pytest.fixture(params=["lends", "makes"])
def actor(request):
    """Calls begin in the spare task, or, as with an asyncio that lends nobody its tasks, each in
    one of its own."""
    return Tasks.remote(request.param == "lends")


def test_a_call_has_one_task_for_its_whole_life(actor):
    assert [call(actor, "same_task_after_a_wait") for _ in range(3)] == [True] * 3


def test_a_task_that_somebody_keeps_is_no_other_calls_and_ends(actor):
    assert [call(actor, "keep_task") for _ in range(3)] == [1, 2, 3]
    assert call(actor, "kept_tasks_are_done") == [True] * 3


def test_context_variables_belong_to_one_call(actor):
    assert [call(actor, "set_variable", i) for i in range(3)] == [None] * 3
    assert [call(actor, "variable_over_a_wait", i) for i in range(3)] == [
        (None, i) for i in range(3)
    ]
    told = [call(actor, "where") for _ in range(3)]
    assert all(same for same, _ in told) and len({task for _, task in told}) == 3


def test_whatever_can_be_awaited_is(actor):
    for _ in range(3):
        assert call(actor, "future") == "set"
        assert call(actor, "object_to_await", 7) == 7
        assert call(actor, "object_to_await", None) is None
        assert call(actor, "made_by_generator") == "generated"


@pytest.mark.parametrize("count", [0, 1, 8, 9, 500])
def test_calls_get_as_many_arguments_as_they_are_given(actor, count):
    numbers = list(range(count))
    assert call(actor, "with_many", *numbers) == sum(numbers)
    assert call(actor, "plain_with_many", *numbers) == sum(numbers)


def test_the_end_of_an_iteration_is_no_result(actor):
    for _ in range(2):
        with pytest.raises(RuntimeError, match="StopIteration"):
            call(actor, "raise_stop")
        with pytest.raises(sheaf.exceptions.RayTaskError, match="at once"):
            call(actor, "raise_stop_at_once")


def test_calls_that_come_together_see_one_task_at_a_time(actor):
    refs, kept = [], []
    for _ in range(100):
        refs += [actor.task_name.remote() for _ in range(3)]
        kept.append(actor.keep_task.remote())  # Each of these has another one.
    assert all(sheaf.get(refs, timeout=WAIT_S))
    assert sheaf.get(kept, timeout=WAIT_S) == list(range(1, 101))
    assert call(actor, "kept_tasks_are_done") == [True] * 100
    assert call(actor, "wait_for_the_others") == 0


@sheaf.remote(max_concurrency=200)
class Streamer:
    def __init__(self):
        self.made = 0

    async def count(self, n):
        for i in range(n):
            self.made += 1
            yield i

    async def how_many(self):
        return self.made

    async def echo(self, x):
        return x


def test_streams_are_cancelled_while_they_wait_for_their_consumers():
    """A thread of each waits for room inside the call when the coroutine is cancelled, and calls
    behind it take its place."""
    actor = Streamer.remote()
    for round in range(1, 81):
        streams = [
            actor.count.options(
                num_returns="streaming", _generator_backpressure_num_objects=1
            ).remote(100)
            for _ in range(50)
        ]
        for stream in streams:
            assert sheaf.get(next(stream), timeout=WAIT_S) == 0
        deadline = time.monotonic() + WAIT_S
        while (
            sheaf.get(actor.how_many.remote(), timeout=WAIT_S) < 2 * 50 * round
        ):  # One taken, one on its way, whose maker waits.
            assert time.monotonic() < deadline
        for stream in streams:
            sheaf.cancel(stream)
        assert sheaf.get([actor.echo.remote(i) for i in range(100)], timeout=WAIT_S) == list(
            range(100)
        )
        for stream in streams:
            with pytest.raises(sheaf.exceptions.TaskCancelledError):
                for item in stream:
                    sheaf.get(item, timeout=WAIT_S)


def test_timeouts_and_cancellation_by_the_call_itself(actor):
    assert [call(actor, "time_out") for _ in range(2)] == [0, 0]
    assert [call(actor, "cancel_itself") for _ in range(2)] == ["cancelled"] * 2
    assert [call(actor, "cancel_itself_and_end") for _ in range(2)] == ["ended"] * 2
    assert call(actor, "same_task_after_a_wait")


def test_an_idle_actor_has_no_other_tasks(actor):
    call(actor, "note_at_once", 1)
    assert call(actor, "wait_for_the_others") == 0


@pytest.mark.parametrize("first", [False, True])
def test_calls_start_in_their_order_whether_they_wait_or_not(actor, first):
    if first:
        sheaf.wait([actor.note.remote(-1, True)], timeout=0.05)
    refs = [
        actor.note.remote(i, i % 3 == 1) if i % 2 else actor.note_at_once.remote(i)
        for i in range(300)
    ]
    assert [i for i in call(actor, "all_seen") if i >= 0] == list(range(300))
    sheaf.get(refs, timeout=WAIT_S)


def test_the_first_call_of_a_method_fails_and_is_cancelled_as_others_are(actor):
    for _ in range(2):
        with pytest.raises(KeyError, match="late"):
            call(actor, "raise_after_a_wait")
    for count in (1, 2):
        ref = actor.cancel_inner.remote()
        deadline = time.monotonic() + WAIT_S
        while call(actor, "all_seen").count("begun") < count:
            assert time.monotonic() < deadline
        sheaf.cancel(ref)
        with pytest.raises(sheaf.exceptions.TaskCancelledError):
            sheaf.get(ref, timeout=WAIT_S)
        assert call(actor, "all_seen") == ["begun", "ended"] * count


@sheaf.remote(max_retries=0)
def forever():
    while True:
        time.sleep(0.01)


@sheaf.remote(num_cpus=0)
class Parent:
    def __init__(self):
        self.children = []

    async def spawn(self):
        self.children.append(forever.remote())
        await self.children[0]

    async def child(self):
        while not self.children:
            await asyncio.sleep(0.001)
        return self.children


def test_a_recursive_cancel_reaches_what_a_coroutine_submitted():
    parent = Parent.remote()
    call = parent.spawn.remote()
    (child,) = sheaf.get(parent.child.remote(), timeout=WAIT_S)
    sheaf.cancel(call, recursive=True)
    for ref in (call, child):
        with pytest.raises(sheaf.exceptions.TaskCancelledError):
            sheaf.get(ref, timeout=WAIT_S)


@sheaf.remote(num_cpus=0, concurrency_groups={"one": 2, "two": 2})
class Grouped:
    def __init__(self):
        self.loops = {"made": asyncio.get_running_loop()}
        self.free = threading.Event()

    @sheaf.method(concurrency_group="one")
    async def block(self):
        self.loops["one"] = asyncio.get_running_loop()
        return self.free.wait(WAIT_S)

    @sheaf.method(concurrency_group="two")
    async def unblock(self):
        self.loops["two"] = asyncio.get_running_loop()
        self.free.set()

    @sheaf.method(concurrency_group="one")
    async def sleep(self):
        await asyncio.sleep(WAIT_S)

    async def loop_count(self):
        self.loops["default"] = asyncio.get_running_loop()
        return len(set(self.loops.values()))

    def stop_here(self):
        return self.free.wait(WAIT_S)


def test_a_concurrency_group_that_blocks_blocks_no_other():
    actor = Grouped.remote()
    blocked = [actor.block.remote(), actor.stop_here.remote()]
    assert sheaf.get(actor.__ray_ready__.remote(), timeout=WAIT_S)
    assert sheaf.wait(blocked, timeout=0)[0] == []
    sheaf.get(actor.unblock.remote(), timeout=WAIT_S)
    assert sheaf.get(blocked, timeout=WAIT_S) == [True, True]
    assert (
        sheaf.get(actor.loop_count.remote(), timeout=WAIT_S) == 3
    )  # The constructor ran on the default group's.
    call = actor.sleep.remote()
    sheaf.cancel(call)
    with pytest.raises(sheaf.exceptions.TaskCancelledError):
        sheaf.get(call, timeout=WAIT_S)


class KnowsItself:
    def __init__(self):
        context = sheaf.get_runtime_context()
        self.me = context.current_actor
        self.begun = (context.get_actor_id(), context.get_actor_name(), bool(context.get_task_id()))

    async def what(self):
        return self.begun, sheaf.get_runtime_context().get_actor_id()

    async def ask_itself(self):
        return (await self.me.what.remote())[1]

    async def in_a_thread(self):
        def ask():
            return sheaf.get_runtime_context().get_actor_id()

        return await asyncio.get_running_loop().run_in_executor(None, ask)


@pytest.mark.parametrize("given", [{}, {"concurrency_groups": {"io": 2}}])
def test_the_constructor_and_threads_of_an_async_actor_know_it(given):
    name = f"knows {len(given)}"
    actor = sheaf.remote(num_cpus=0)(KnowsItself).options(name=name, **given).remote()
    own = actor._actor_id.hex()
    assert sheaf.get(actor.what.remote(), timeout=WAIT_S) == ((own, name, True), own)
    assert sheaf.get(actor.ask_itself.remote(), timeout=WAIT_S) == own
    assert sheaf.get(actor.in_a_thread.remote(), timeout=WAIT_S) == own


def test_loops_that_end_before_their_results_arrive_leave_nothing():
    gate = Gate.remote()

    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gate.wait.remote(), 0.001)

    asyncio.run(give_up())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        asyncio.run(give_up())
    asyncio.run(give_up_nothing())
    assert len(os.listdir("/proc/self/fd")) <= before + 1


async def give_up_nothing():
    assert await sheaf.put(1) == 1


@sheaf.remote(num_cpus=0, max_concurrency=20)
class Beginner:
    """Its methods do not wait."""

    def __init__(self):
        self.log = []

    async def begin(self):
        loop = asyncio.get_running_loop()

        async def task():
            self.log.append("task")

        self.task = loop.create_task(task())
        loop.call_soon(self.log.append, "soon")
        loop.call_later(0.02, self.log.append, "later")
        threading.Timer(0.5, self.look).start()  # Nothing that wakes the loop.

    def look(self):
        self.looked = list(self.log)
        self.log.clear()

    async def what_was_seen(self):
        return self.looked

    async def give_reference(self):
        return sheaf.put("inner")

    def give_reference_at_once(self):
        return sheaf.put("inner")

    async def mark_task(self):
        asyncio.current_task().set_name("mine")
        asyncio.current_task().add_done_callback(lambda _: self.log.append("done"))

    async def marks(self):
        named = asyncio.current_task().get_name() == "mine"
        while not self.log:
            await asyncio.sleep(0.001)
        return named, self.log.pop()

    async def cancel_and_take_back(self):
        asyncio.current_task().cancel()
        asyncio.current_task().uncancel()

    async def wait(self):
        await asyncio.sleep(0.001)
        return "waited"

    async def cancel_itself(self):
        asyncio.current_task().cancel("why")
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError as error:
            return error.args

    async def catch(self):
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "caught"


def test_what_a_call_has_begun_goes_on_without_another_call():
    actor = Beginner.remote()
    for _ in range(3):
        call(actor, "begin")
        time.sleep(0.8)
        assert call(actor, "what_was_seen") == ["task", "soon", "later"]


def test_a_coroutine_may_return_a_reference():
    actor = Beginner.remote()
    for _ in range(3):
        assert sheaf.get(call(actor, "give_reference"), timeout=WAIT_S) == "inner"
        assert sheaf.get(call(actor, "give_reference_at_once"), timeout=WAIT_S) == "inner"


def test_a_call_finds_nothing_of_another_in_its_task():
    actor = Beginner.remote()
    for _ in range(3):
        call(actor, "mark_task")
        assert call(actor, "marks") == (False, "done")
        call(actor, "cancel_and_take_back")
        assert call(actor, "wait") == "waited"
    assert call(Beginner.remote(), "cancel_itself") == ("why",)


def test_a_call_that_is_cancelled_several_times_is_cancelled():
    actor = Beginner.remote()
    for _ in range(30):
        ref = actor.catch.remote()
        time.sleep(0.05)
        for _ in range(5):
            sheaf.cancel(ref)
        with pytest.raises(sheaf.exceptions.TaskCancelledError):
            sheaf.get(ref, timeout=WAIT_S)
