# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What users see when things go wrong: types, tracebacks, retries, cancellation."""

import errno
import os
import pickle
import re
import signal
import sys
import time

import pytest
import sheaf
from conftest import WAIT_S, wait_until
from sheaf import exceptions

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote(num_cpus=0)
def divide(a, b):
    return a / b


def test_an_error_is_what_was_raised_and_says_where():
    with pytest.raises(ZeroDivisionError) as caught:
        sheaf.get(divide.remote(1, 0))
    assert isinstance(caught.value, exceptions.RayTaskError)
    assert isinstance(caught.value.cause, ZeroDivisionError)
    text = str(caught.value)
    assert (
        "divide" in text
        and "return a / b" in text
        and "ZeroDivisionError: division by zero" in text
    )
    assert os.path.dirname(sheaf.__file__) not in text


def test_an_error_travels_through_dependencies_and_nested_calls():
    @sheaf.remote(num_cpus=0)
    def outer():
        return sheaf.get(divide.remote(1, 0))

    for ref in (divide.remote(divide.remote(1, 0), 2), outer.remote()):
        with pytest.raises(ZeroDivisionError):
            sheaf.get(ref)


class Special(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class NotPicklable(Exception):
    def __init__(self):
        super().__init__("held")
        self.lock = __import__("threading").Lock()


def test_exceptions_with_state_or_without_pickle():
    @sheaf.remote(num_cpus=0)
    def fail(kind, *args):
        raise kind(*args)

    with pytest.raises(exceptions.RayTaskError) as caught:
        sheaf.get(fail.remote(Special, 7, "special"))
    assert "Special: special" in str(caught.value)
    assert re.search(
        r"Special isn't serializable: Special.__init__\(\) missing 1 .*\nSpecial: special",
        str(caught.value.cause),
    )
    with pytest.raises(exceptions.RayTaskError, match="NotPicklable: held") as caught:
        sheaf.get(fail.remote(NotPicklable))
    assert "value.lock is a _thread.lock" in str(caught.value.cause)
    with pytest.raises(exceptions.WorkerCrashedError, match="sys.exit"):
        sheaf.get(fail.remote(SystemExit, 3))


def test_a_cancelled_call_leaves_no_module_half_imported(tmp_path):
    """The word comes while its arguments are unpickled: later calls in that process must be able to
    import the same."""
    package = tmp_path / "half_way"
    package.mkdir()
    (package / "part.py").write_text("__all__ = ['value']\nvalue = 7\n")
    (package / "__init__.py").write_text(
        f"import os, time\nfrom .part import *\nopen({str(tmp_path / 'pid')!r}, "
        "'w').write(str(os.getpid()))\ntime.sleep(1)\nvalue = part.value\n"
    )

    class Needs:
        def __reduce__(self):
            return eval, (
                f"__import__('sys').path.insert(0, {str(tmp_path)!r}) or "
                "__import__('half_way').value",
            )

    @sheaf.remote
    def take(value):
        return value, os.getpid()

    cancelled = take.remote(Needs())
    deadline = time.monotonic() + WAIT_S
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
    sheaf.cancel(cancelled)
    with pytest.raises(exceptions.TaskCancelledError):
        sheaf.get(cancelled, timeout=WAIT_S)
    pid = int((tmp_path / "pid").read_text())
    while True:
        assert time.monotonic() < deadline
        value, where = sheaf.get(take.remote(Needs()), timeout=WAIT_S)
        assert value == 7
        if where == pid:
            break


def test_an_import_inside_a_cancelled_call_comes_to_its_end(tmp_path):
    """Some libraries (torch is one) refuse a second import in a process whose first was broken off."""
    (tmp_path / "once_only.py").write_text(
        "import os, sys, time\n"
        "if getattr(sys, '_once_only', False):\n    raise ImportError('once in a process')\n"
        f"sys._once_only = True\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(1)\nvalue = 7\n"
    )

    @sheaf.remote(num_cpus=0)
    def take(pause):
        sys.path.insert(0, str(tmp_path))
        import once_only

        time.sleep(pause)
        return once_only.value, os.getpid()

    cancelled = take.remote(2 * WAIT_S)
    pid = int(wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    sheaf.cancel(cancelled)
    with pytest.raises(exceptions.TaskCancelledError):
        sheaf.get(cancelled, timeout=WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while True:
        value, where = sheaf.get(take.remote(0), timeout=WAIT_S)
        assert value == 7
        if where == pid:
            break
        assert time.monotonic() < deadline


class Unspeakable(Exception):
    """Whose words cannot be had."""

    def __str__(self):
        raise RuntimeError("no words")


def test_exceptions_with_odd_words_keep_their_class():
    @sheaf.remote(num_cpus=0)
    def fail(kind, *args):
        raise kind(*args)

    with pytest.raises(ValueError) as caught:
        sheaf.get(fail.remote(ValueError, "half a character: \udcff"), timeout=WAIT_S)
    assert caught.value.args == ("half a character: \udcff",) and "\\udcff" in str(caught.value)
    with pytest.raises(FileNotFoundError):
        sheaf.get(fail.remote(FileNotFoundError, 2, "no such file", "\udcff"), timeout=WAIT_S)
    with pytest.raises(MemoryError, match="too much"):
        sheaf.get(fail.remote(MemoryError, "too much"), timeout=WAIT_S)
    if sys.version_info >= (3, 11):
        with pytest.raises(ExceptionGroup) as caught:
            sheaf.get(
                fail.remote(ExceptionGroup, "several", [KeyError(1), ValueError(2)]), timeout=WAIT_S
            )
        assert [type(one) for one in caught.value.exceptions] == [
            KeyError,
            ValueError,
        ] and caught.value.message == "several"
    with pytest.raises(exceptions.RayTaskError) as caught:
        sheaf.get(fail.remote(Unspeakable), timeout=WAIT_S)
    assert isinstance(caught.value.cause, Unspeakable)


class Leaves:
    """Ends by sys.exit."""

    def __init__(self):
        self.calls = 0

    def count(self):
        self.calls += 1
        return self.calls

    def leave(self, code):
        sys.exit(code)


class LeavesAsync:
    """The same, on an event loop."""

    def __init__(self):
        self.calls = 0

    async def count(self):
        self.calls += 1
        return self.calls

    async def leave(self, code):
        sys.exit(code)


@pytest.mark.parametrize("kind", [Leaves, LeavesAsync])
def test_an_actor_that_calls_sys_exit_ends(kind):
    """With 0 as by exit_actor(), else as by a crash, after which it may restart."""
    actor = sheaf.remote(num_cpus=0, max_restarts=1)(kind).remote()
    assert sheaf.get([actor.count.remote() for _ in range(2)], timeout=WAIT_S) == [1, 2]
    with pytest.raises(exceptions.RayActorError):
        sheaf.get(actor.leave.remote(3), timeout=WAIT_S)
    assert sheaf.get(actor.count.remote(), timeout=WAIT_S) == 1
    with pytest.raises(exceptions.ActorDiedError):
        sheaf.get(actor.leave.remote(0), timeout=WAIT_S)
    with pytest.raises(exceptions.ActorDiedError):
        sheaf.get(actor.count.remote(), timeout=WAIT_S)


class Coded(Exception):
    """With a constructor of its own, and pickled all the same."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


class Slotted(Exception):
    __slots__ = ("where",)


def test_what_was_raised_has_its_attributes():
    @sheaf.remote(num_cpus=0)
    def fail(kind):
        if kind is OSError:
            open("/no/such/file")  # noqa: SIM115
        if kind is UnicodeDecodeError:
            b"\xff".decode()
        raise kind(7)

    with pytest.raises(Coded) as caught:
        sheaf.get(fail.remote(Coded), timeout=WAIT_S)
    assert caught.value.code == 7 and caught.value.args == (7,)
    with pytest.raises(FileNotFoundError) as caught:
        sheaf.get(fail.remote(OSError), timeout=WAIT_S)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "/no/such/file")
    with pytest.raises(UnicodeDecodeError) as caught:
        sheaf.get(fail.remote(UnicodeDecodeError), timeout=WAIT_S)
    assert (caught.value.encoding, caught.value.object, caught.value.start) == ("utf-8", b"\xff", 0)
    with pytest.raises(Slotted):
        sheaf.get(fail.remote(Slotted), timeout=WAIT_S)
    assert caught.value.function_name == "fail" and "ray::fail() (pid=" in str(caught.value)


def test_task_errors_can_be_pickled():
    try:
        sheaf.get(divide.remote(1, 0))
    except ZeroDivisionError as error:
        back = pickle.loads(pickle.dumps(error))
    assert isinstance(back, ZeroDivisionError) and str(back).startswith("ray::divide() (pid=")


def test_retry_exceptions_covers_what_it_lists(tmp_path):
    @sheaf.remote(num_cpus=0, max_retries=5)
    def flaky(path, kind):
        with open(path, "a") as file:
            file.write("x")
        if os.path.getsize(path) < 3:
            raise kind("not yet")
        return os.path.getsize(path)

    listed = flaky.options(retry_exceptions=[OSError])
    assert sheaf.get(listed.remote(str(tmp_path / "a"), OSError)) == 3
    with pytest.raises(ValueError):
        sheaf.get(listed.remote(str(tmp_path / "b"), ValueError))
    assert (
        sheaf.get(flaky.options(retry_exceptions=True).remote(str(tmp_path / "c"), ValueError)) == 3
    )
    with pytest.raises(OSError):
        sheaf.get(flaky.remote(str(tmp_path / "d"), OSError))


def test_a_dead_worker_is_told_or_its_task_tried_again(tmp_path):
    @sheaf.remote(num_cpus=0)
    def die_once(path):
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(1)
        return "second try"

    assert sheaf.get(die_once.remote(str(tmp_path / "a")), timeout=WAIT_S) == "second try"
    with pytest.raises(exceptions.WorkerCrashedError):
        sheaf.get(die_once.options(max_retries=0).remote(str(tmp_path / "b")), timeout=WAIT_S)


def test_a_sleeping_task_is_cancelled_at_once():
    @sheaf.remote(num_cpus=0)
    def sleep():
        open_file = os.pipe()[0]
        os.read(open_file, 1) if False else time.sleep(60)

    ref = sleep.remote()
    with pytest.raises(exceptions.GetTimeoutError):
        sheaf.get(ref, timeout=0.3)
    begin = time.monotonic()
    sheaf.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        sheaf.get(ref, timeout=WAIT_S)
    assert time.monotonic() - begin < 10
    assert sheaf.get(divide.remote(4, 2), timeout=WAIT_S) == 2


def test_an_interruption_that_was_lost_is_repeated(tmp_path):
    @sheaf.remote(num_cpus=0)
    def deaf_at_first(heard):
        handler = signal.signal(
            signal.SIGINT, lambda *_: open(heard, "w").close()
        )  # As one that comes just before the sleep.
        while not os.path.exists(heard):
            time.sleep(0.001)
        signal.signal(signal.SIGINT, handler)
        time.sleep(2 * WAIT_S)

    ref = deaf_at_first.remote(str(tmp_path / "heard"))
    assert sheaf.wait([ref], timeout=0.3) == ([], [ref])
    sheaf.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        sheaf.get(ref, timeout=WAIT_S)


def test_what_a_cancelled_task_does_before_it_ends_is_not_interrupted_again(tmp_path):
    @sheaf.remote(num_cpus=0)
    def tidy(begun, done):
        try:
            open(begun, "w").close()
            time.sleep(2 * WAIT_S)
        finally:
            time.sleep(1)
            open(done, "w").close()

    ref = tidy.remote(str(tmp_path / "begun"), str(tmp_path / "done"))
    wait_until(lambda: (tmp_path / "begun").exists())
    sheaf.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        sheaf.get(ref, timeout=WAIT_S)
    assert (tmp_path / "done").exists()


def test_a_task_that_waits_for_another_is_cancelled_with_it():
    @sheaf.remote(num_cpus=0)
    def inner():
        time.sleep(60)

    @sheaf.remote(num_cpus=0)
    def outer():
        return sheaf.get(inner.remote())

    ref = outer.remote()
    sheaf.wait([ref], timeout=0.3)
    sheaf.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        sheaf.get(ref, timeout=WAIT_S)


def test_an_actor_restarts_as_often_as_it_may():
    @sheaf.remote(num_cpus=0, max_restarts=1, max_task_retries=1)
    class Fragile:
        calls = 0

        def call(self):
            self.calls += 1
            return self.calls

        def pid(self):
            return os.getpid()

    actor = Fragile.remote()
    assert sheaf.get([actor.call.remote() for _ in range(3)]) == [1, 2, 3]
    os.kill(sheaf.get(actor.pid.remote()), 9)
    assert sheaf.get(actor.call.remote(), timeout=WAIT_S) == 1
    os.kill(sheaf.get(actor.pid.remote()), 9)
    with pytest.raises(exceptions.RayActorError):
        sheaf.get(actor.call.remote(), timeout=WAIT_S)


@pytest.mark.parametrize(
    "options, kind, words",
    [
        ({"num_cpu": 1}, ValueError, "did you mean num_cpus"),
        ({"num_cpus": -1}, ValueError, "num_cpus=-1"),
        ({"num_cpus": "2"}, TypeError, "num_cpus='2'"),
        ({"max_retries": -2}, ValueError, "max_retries=-2"),
        ({"max_restarts": 1}, ValueError, "for actors"),
        ({"resources": {"CPU": 1}}, ValueError, "num_cpus=1"),
        ({"num_returns": -1}, ValueError, "num_returns=-1"),
        ({"retry_exceptions": [3]}, ValueError, "retry_exceptions"),
        ({"max_retries": 2**40}, ValueError, "max_retries=1099511627776: at most 2147483647"),
        ({"max_calls": 2**70}, ValueError, "max_calls=.*: at most"),
        ({"resources": {1: 1}}, TypeError, "names that are str, got 1"),
        ({"name": "\udcff"}, ValueError, "name='.udcff'"),
        (
            {"_generator_backpressure_bytes": 0},
            ValueError,
            "_generator_backpressure_bytes=0: want a number of bytes from 1",
        ),
        (
            {"_generator_backpressure_num_objects": "3"},
            TypeError,
            "_generator_backpressure_num_objects='3'",
        ),
    ],
)
def test_wrong_options_are_named_with_the_remedy(options, kind, words):
    with pytest.raises(kind, match=words):
        sheaf.remote(**options)(lambda: 1)
    with pytest.raises(kind, match=words):
        divide.options(**options)


@pytest.mark.parametrize(
    "options, kind, words",
    [
        ({"max_restarts": 2**70}, ValueError, "max_restarts=.*: at most"),
        ({"max_concurrency": 2**40}, ValueError, "max_concurrency=.*: at most"),
        ({"max_pending_calls": "3"}, TypeError, "max_pending_calls='3'"),
        ({"concurrency_groups": {1: 1}}, TypeError, "names that are str, got 1"),
        ({"concurrency_groups": {"io": 2**40}}, ValueError, "at most"),
    ],
)
def test_wrong_options_of_actors_are_named_with_the_remedy(options, kind, words):
    class Actor:
        pass

    with pytest.raises(kind, match=words):
        sheaf.remote(**options)(Actor)
    with pytest.raises(kind, match=words):
        sheaf.remote(Actor).options(**options)


def test_no_frames_of_the_package_hide_a_deep_recursion():
    @sheaf.remote(num_cpus=0)
    def deep(n):
        return deep._function(n + 1)

    with pytest.raises(RecursionError):
        sheaf.get(deep.remote(0), timeout=WAIT_S)
    assert sys.getrecursionlimit() >= 1000


def test_an_exception_may_hold_references_and_handles():
    @sheaf.remote(num_cpus=0)
    class Kept:
        def answer(self):
            return 42

    @sheaf.remote
    def raises():
        raise ValueError("with", sheaf.put("value"), Kept.remote())

    with pytest.raises(ValueError) as caught:
        sheaf.get(raises.remote())
    _, value, actor = caught.value.args
    assert sheaf.get(value) == "value"
    assert sheaf.get(actor.answer.remote()) == 42


def test_exceptions_of_any_size_arrive():
    @sheaf.remote(num_cpus=0)
    def fail(size):
        raise ValueError(b"x" * size)

    for size in (10, 100_000, 10_000_000):
        with pytest.raises(ValueError) as caught:
            sheaf.get(fail.remote(size), timeout=WAIT_S)
        assert caught.value.args == (b"x" * size,)


class NotReady(Exception):
    pass


class Model:
    def __getstate__(self):
        raise NotReady("call fit() first")


@pytest.mark.parametrize("large", [b"", bytes(200_000)])
def test_what_a_value_raises_while_it_is_pickled_is_raised(large):
    same = sheaf.remote(lambda value: value)
    for send in (sheaf.put, same.remote):
        with pytest.raises(NotReady, match="call fit"):
            send([large, Model()])
