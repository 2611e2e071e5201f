# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What calls of an actor say whose constructor failed, or which was ended; and which run after it."""

import asyncio
import os
import pathlib
import pickle
import signal
import time

import pytest
import sheaf
from conftest import WAIT_S, is_running, wait_until
from sheaf.exceptions import ActorDiedError, RayTaskError

pytestmark = pytest.mark.usefixtures("node")


class NoLuck(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


def wait_for(path):
    deadline = time.monotonic() + WAIT_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.005)


class Sync:
    def __init__(self, gate: pathlib.Path):
        wait_for(gate)
        raise NoLuck(7)

    def call(self):
        return 1


class Async(Sync):
    async def call(self):
        return 1


@sheaf.remote(num_cpus=0)
def ask(actor):
    """Of another process: the error of a call."""
    try:
        sheaf.get(actor.call.remote(), timeout=WAIT_S)
    except ActorDiedError as error:
        return error
    return None


@pytest.mark.parametrize("kind", [Sync, Async])
@pytest.mark.parametrize(
    "options",
    [{}, {"max_restarts": 2, "max_task_retries": 2}, {"max_concurrency": 3}],
    ids=["plain", "restarts", "threads"],
)
def test_calls_before_and_after_tell_what_the_constructor_raised(kind, options, tmp_path):
    gate = tmp_path / "gate"
    actor = sheaf.remote(num_cpus=0, **options)(kind).remote(gate)
    before, elsewhere = actor.call.remote(), ask.remote(actor)
    gate.touch()
    errors = []
    for ref in before, actor.call.remote(), actor.call.remote():
        with pytest.raises(ActorDiedError) as caught:
            sheaf.get(ref, timeout=WAIT_S)
        errors.append(caught.value)
    for error in errors:
        assert (
            isinstance(error.cause, NoLuck)
            and isinstance(error.cause, RayTaskError)
            and error.cause.code == 7
        )
    errors += [
        sheaf.get(elsewhere, timeout=2 * WAIT_S),
        sheaf.get(ask.remote(actor), timeout=2 * WAIT_S),
    ]
    for error in errors:
        assert error.actor_init_failed and isinstance(error.cause, RayTaskError)
        text = str(error)
        assert f"the constructor of the actor {kind.__name__} failed" in text
        assert text.count("raise NoLuck(7)") == 1 and text.endswith("NoLuck: 7")
        # Frames of the user alone: neither Sheaf's nor those of the event loop.
        files = {line.split('"')[1] for line in text.splitlines() if line.startswith("  File ")}
        assert files == {__file__}
        assert "raise NoLuck(7)" in str(error.cause)
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == text and str(again.cause) == str(error.cause)


def test_a_detached_actor_tells_it_too():
    actor = (
        sheaf.remote(num_cpus=0)(Sync)
        .options(name="doomed", lifetime="detached")
        .remote(pathlib.Path("/"))
    )
    for _ in range(2):
        with pytest.raises(
            ActorDiedError, match=r"the constructor of the actor Sync failed(.|\n)*NoLuck: 7"
        ) as caught:
            sheaf.get(actor.call.remote(), timeout=WAIT_S)
        assert caught.value.actor_init_failed


@sheaf.remote(num_cpus=0)
class Plain:
    def pid(self):
        return os.getpid()

    def leave(self):
        sheaf.actor.exit_actor()

    def crash(self):
        os._exit(3)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("leave", "it asked for its end"),
        ("crash", "exited with status 3"),
        ("kill", "kill was called"),
    ],
)
def test_an_actor_that_ended_says_how(how, words):
    actor = Plain.remote()
    sheaf.get(actor.pid.remote(), timeout=WAIT_S)
    if how == "kill":
        sheaf.kill(actor)
    else:
        with pytest.raises(ActorDiedError):
            sheaf.get(getattr(actor, how).remote(), timeout=WAIT_S)
    with pytest.raises(ActorDiedError, match=words) as caught:
        sheaf.get(actor.pid.remote(), timeout=WAIT_S)
    assert not caught.value.actor_init_failed and caught.value.cause is None


@sheaf.remote(num_cpus=0, max_concurrency=4)
class Threads:
    def run(self, begun, gate):
        begun.touch()
        wait_for(gate)
        return os.getpid()

    def leave(self):
        sheaf.actor.exit_actor()


@sheaf.remote(num_cpus=0)
class Coroutines:
    async def run(self, begun, gate):
        begun.touch()
        while not gate.exists():
            await asyncio.sleep(0.005)
        return os.getpid()

    async def leave(self):
        sheaf.actor.exit_actor()


@sheaf.remote(num_cpus=0, concurrency_groups={"io": 3})
class Groups:
    @sheaf.method(concurrency_group="io")
    async def run(self, begun, gate):
        begun.touch()
        while not gate.exists():
            await asyncio.sleep(0.005)
        return os.getpid()

    async def leave(self):
        sheaf.actor.exit_actor()


@pytest.mark.parametrize("kind", [Threads, Coroutines, Groups])
def test_what_runs_may_end_before_an_actor_that_asks_for_its_end(kind, tmp_path):
    actor = kind.remote()
    begun, gate = [tmp_path / f"begun {n}" for n in range(2)], tmp_path / "gate"
    runs = [actor.run.remote(path, gate) for path in begun]
    wait_until(lambda: all(path.exists() for path in begun), "a call does not begin")
    leaves = actor.leave.remote()

    def begins_no_more():
        try:
            sheaf.get(actor.run.remote(tmp_path / "late", tmp_path), timeout=WAIT_S)
        except ActorDiedError:
            return True
        return False

    wait_until(begins_no_more, "calls still begin")
    gate.touch()
    (pid,) = set(sheaf.get(runs, timeout=WAIT_S))
    with pytest.raises(ActorDiedError, match="it asked for its end"):
        sheaf.get(leaves, timeout=WAIT_S)
    wait_until(lambda: not is_running(pid), "its process stays")


def test_an_actor_has_a_handle_of_itself():
    @sheaf.remote(num_cpus=0)
    class Parent:
        def __init__(self):
            self.told = []

        def make(self):
            return Child.remote(sheaf.get_runtime_context().current_actor)

        def tell(self, word):
            self.told.append(word)
            return self.told

    @sheaf.remote(num_cpus=0)
    class Child:
        def __init__(self, parent):
            self.parent = parent

        def call_home(self):
            return sheaf.get(self.parent.tell.remote("hello"), timeout=WAIT_S)

    parent = Parent.remote()
    child = sheaf.get(parent.make.remote(), timeout=WAIT_S)
    assert sheaf.get(child.call_home.remote(), timeout=WAIT_S) == ["hello"]
    del parent  # The child's handle keeps it.
    assert sheaf.get(child.call_home.remote(), timeout=WAIT_S) == ["hello", "hello"]
    with pytest.raises(RuntimeError, match="only available in an actor"):
        sheaf.get_runtime_context().current_actor


@pytest.mark.parametrize("moment", [0, 10, 30])
def test_of_calls_that_wait_when_the_process_dies_at_most_one_is_in_doubt(moment, tmp_path):
    """What had not started runs in the next incarnation, in order; nothing runs twice."""

    @sheaf.remote(num_cpus=0, max_restarts=1)
    class Writer:
        def pid(self):
            return os.getpid()

        def write(self, number):
            with open(tmp_path / "log", "a") as log:
                log.write(f"{number}\n")
            time.sleep(0.002)
            return number

    writer = Writer.remote()
    pid = sheaf.get(writer.pid.remote())
    refs = [writer.write.remote(number) for number in range(40)]
    sheaf.get(refs[moment])
    os.kill(pid, signal.SIGKILL)
    in_doubt = []
    for number, ref in enumerate(refs):
        try:
            assert sheaf.get(ref, timeout=WAIT_S) == number
        except sheaf.exceptions.ActorUnavailableError:
            in_doubt.append(number)
    assert len(in_doubt) <= 1
    ran = [int(line) for line in (tmp_path / "log").read_text().split()]
    assert ran == sorted(set(ran))
    assert set(range(40)) - set(ran) <= set(in_doubt)


def test_calls_of_an_actor_whose_process_dies_in_the_constructor_run_in_the_next_one(tmp_path):
    """None of them had started: neither the creator's first one nor another caller's."""

    @sheaf.remote(num_cpus=0, max_restarts=1)
    class DiesFirst:
        def __init__(self):
            if not (tmp_path / "was here").exists():
                (tmp_path / "was here").touch()
                os._exit(1)

        def echo(self, number):
            return number

    @sheaf.remote(num_cpus=0)
    def call(actor, number):
        return sheaf.get(actor.echo.remote(number), timeout=WAIT_S)

    actor = DiesFirst.remote()
    refs = [actor.echo.remote(0), call.remote(actor, 1), actor.echo.remote(2)]
    assert sheaf.get(refs, timeout=WAIT_S) == [0, 1, 2]


@sheaf.remote(num_cpus=0)
class Count:
    def __init__(self):
        self.calls = 0

    def add(self):
        time.sleep(0.02)  # It works for longer than its caller lives.
        self.calls += 1

    def calls_so_far(self):
        return self.calls


@sheaf.remote(num_cpus=0)
def touch(count):
    sheaf.get(count.calls_so_far.remote())


@sheaf.remote(num_cpus=0)
def call(count):
    sheaf.get(count.add.remote())


class Caller:
    """Its last calls are under way when it ends."""

    def set_own(self, own):
        self.own = own

    def go(self, count, leaves):
        call.remote(count)
        for _ in range(9):
            count.add.remote()
        if self.own is not None:
            self.own.set_own.remote(None)  # Which it takes no more if it leaves.
        if leaves:
            sheaf.actor.exit_actor()


class AsyncCaller:
    def set_own(self, own):
        self.own = own

    async def go(self, count, leaves):
        Caller.go(self, count, leaves)


@pytest.mark.parametrize("leaves", [True, False], ids=["exit_actor", "last handle"])
@pytest.mark.parametrize("kind", [Caller, AsyncCaller])
def test_calls_of_an_actor_that_ends_in_order_come_to_their_ends(kind, leaves):
    actor_class = sheaf.remote(num_cpus=0)(kind)
    for _ in range(4):
        count, caller = Count.remote(), actor_class.remote()
        sheaf.get(touch.remote(count), timeout=WAIT_S)  # A worker for `call` is there.
        sheaf.get(caller.set_own.remote(caller if leaves else None), timeout=WAIT_S)
        if leaves:
            with pytest.raises(ActorDiedError):
                sheaf.get(caller.go.remote(count, leaves), timeout=WAIT_S)
        else:
            sheaf.get(caller.go.remote(count, leaves), timeout=WAIT_S)
            del caller
        wait_until(
            lambda: sheaf.get(count.calls_so_far.remote(), timeout=WAIT_S) == 10,  # noqa: B023
            "a call does not come",
        )


@sheaf.remote(num_cpus=0)
class Leaver:
    def pid(self):
        return os.getpid()

    def slow(self, begun, gate):
        begun.touch()
        wait_for(gate)

    def leave_asked(self, other):
        """Its last call asks it for something itself."""
        other.ask.remote(sheaf.get_runtime_context().current_actor)
        sheaf.actor.exit_actor()

    def leave_asking(self, other, begun, gate):
        other.slow.remote(begun, gate)
        sheaf.actor.exit_actor()

    def leave_with_last_words(self, count):
        self.count = count
        sheaf.actor.exit_actor()

    def __ray_shutdown__(self):
        if hasattr(self, "count"):
            self.count.add.remote()


@sheaf.remote(num_cpus=0)
class AsyncLeaver:
    async def pid(self):
        return os.getpid()

    async def leave_asking(self, other, begun, gate):
        other.slow.remote(begun, gate)
        sheaf.actor.exit_actor()


@sheaf.remote(num_cpus=0)
class Asker:
    def __init__(self):
        self.heard = None

    def ask(self, actor):
        try:
            sheaf.get(actor.pid.remote(), timeout=WAIT_S)
        except ActorDiedError as error:
            self.heard = str(error)

    def answer(self):
        return self.heard


def test_an_actor_that_waits_for_its_calls_refuses_those_of_others():
    asker, leaver = Asker.remote(), Leaver.remote()
    assert sheaf.get(asker.answer.remote(), timeout=WAIT_S) is None  # It is there.
    begun = time.monotonic()
    with pytest.raises(ActorDiedError):
        sheaf.get(leaver.leave_asked.remote(asker), timeout=WAIT_S)
    assert "exit_actor" in sheaf.get(asker.answer.remote(), timeout=WAIT_S)
    assert time.monotonic() - begun < 20  # Not until its patience ends.


def test_the_last_words_of_an_actor_that_asked_for_its_end_arrive():
    for _ in range(4):
        count, leaver = Count.remote(), Leaver.remote()
        assert sheaf.get(count.calls_so_far.remote(), timeout=WAIT_S) == 0
        with pytest.raises(ActorDiedError):
            sheaf.get(leaver.leave_with_last_words.remote(count), timeout=WAIT_S)
        wait_until(
            lambda: sheaf.get(count.calls_so_far.remote(), timeout=WAIT_S) == 1,  # noqa: B023
            "its call does not come",
        )


@pytest.mark.parametrize("lifetime", [None, "detached"])
@pytest.mark.parametrize("kind", [Leaver, AsyncLeaver], ids=["sync", "async"])
def test_an_actor_that_dies_while_it_leaves_is_not_restarted(kind, lifetime, tmp_path):
    name = None if lifetime is None else f"leaver-{tmp_path.name}"
    other, leaver = (
        Leaver.remote(),
        kind.options(max_restarts=-1, max_task_retries=-1, lifetime=lifetime, name=name).remote(),
    )
    _, pid = sheaf.get([other.pid.remote(), leaver.pid.remote()], timeout=WAIT_S)
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    leaves = leaver.leave_asking.remote(other, begun, gate)
    wait_until(begun.exists, "its call does not begin")
    with pytest.raises(ActorDiedError):  # It leaves.
        sheaf.get(leaver.pid.remote(), timeout=WAIT_S)
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)
    for call in leaves, leaver.pid.remote():
        with pytest.raises(ActorDiedError):
            sheaf.get(call, timeout=WAIT_S)
