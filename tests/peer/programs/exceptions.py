# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Exceptions of tasks at the caller: classes, causes, attributes, pickling, what cannot travel."""

import os
import pickle

import ray
from program import kinds, main, outcome, program, say
from ray.exceptions import RayTaskError


class Mine(Exception):
    pass


class WithFields(Exception):
    def __init__(self, code, *, detail="none"):
        super().__init__(f"code {code}")
        self.code = code
        self.detail = detail


class TwoArguments(Exception):
    def __init__(self, a, b):
        super().__init__(a + b)
        self.b = b


class NotPicklable(Exception):
    def __init__(self):
        import threading

        super().__init__("locked")
        self.lock = threading.Lock()


class NotUnpicklable(Exception):
    def __reduce__(self):
        return _never, ()


def _never():
    raise OSError("cannot be read")


@ray.remote
def throw(error):
    raise error


@ray.remote
def throws(make):
    raise make()


def caught(ref):
    try:
        ray.get(ref)
    except Exception as error:
        return error


@program
def builtin_classes():
    for error in [
        ValueError("v"),
        KeyError("k"),
        IndexError(1),
        ZeroDivisionError(),
        StopIteration(3),
    ]:
        found = caught(throw.remote(error))
        say(kinds(found), type(found.cause).__name__, found.cause.args)


@program
def operating_system_errors():
    @ray.remote
    def opens():
        os.stat("/nowhere/at/all")

    found = caught(opens.remote())
    say(kinds(found))
    say(
        isinstance(found, FileNotFoundError),
        isinstance(found, OSError),
        isinstance(found, RayTaskError),
    )
    outcome(lambda: (found.cause.errno, found.cause.filename))


@program
def classes_of_the_user():
    found = caught(throw.remote(Mine("hello")))
    say(kinds(found), isinstance(found, Mine), type(found.cause) is Mine, str(found.cause))
    try:
        ray.get(throw.remote(Mine("again")))
    except Mine as error:
        say("caught as Mine", type(error).__name__)
    say("hello" in str(found))


@program
def args_of_the_error():
    found = caught(throw.remote(Mine("one", 2)))
    outcome(lambda: found.cause.args)
    outcome(lambda: type(found.args).__name__)


@program
def attributes_of_the_error():
    found = caught(throws.remote(lambda: WithFields(7, detail="d")))
    say(kinds(found))
    outcome(lambda: (found.code, found.detail))
    outcome(lambda: (found.cause.code, found.cause.detail))
    outcome(lambda: found.nothing)


@program
def constructors_with_several_arguments():
    found = caught(throws.remote(lambda: TwoArguments("a", "b")))
    say(isinstance(found, ray.exceptions.UnserializableException), "ab" in str(found))


@program
def constructors_with_defaults_and_keywords():
    class Keyword(Exception):
        def __init__(self, *, reason):
            super().__init__(reason)
            self.reason = reason

    found = caught(throws.remote(lambda: Keyword(reason="r")))
    say(isinstance(found, ray.exceptions.UnserializableException), "Keyword" in str(found))


@program
def exceptions_that_cannot_be_pickled():
    found = caught(throws.remote(NotPicklable))
    say(isinstance(found, RayTaskError), "locked" in str(found), "NotPicklable" in str(found))
    say(isinstance(found.cause, ray.exceptions.RayError))
    say("isn't serializable" in str(found.cause))


@program
def exceptions_that_cannot_be_unpickled():
    found = caught(throws.remote(lambda: NotUnpicklable("secret")))
    say(isinstance(found, ray.exceptions.RayError), "NotUnpicklable" in str(found))


@program
def the_cause_of_the_error():
    @ray.remote
    def f():
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    found = caught(f.remote())
    say(kinds(found), type(found.cause).__name__)
    outcome(lambda: type(found.cause.__cause__).__name__)
    say("first" in str(found), "second" in str(found), "direct cause" in str(found))
    say(type(found.__cause__).__name__)


@program
def the_error_as_task_error_alone():
    found = caught(throw.remote(ValueError("v")))
    say(type(found.as_instanceof_cause()).__name__)
    say(isinstance(found, RayTaskError), isinstance(found.cause, RayTaskError))


@program
def errors_are_pickled():
    found = caught(throw.remote(ValueError("v")))
    copy = pickle.loads(ray.cloudpickle.dumps(found))
    say(kinds(copy), str(copy.cause), str(copy) == str(found))
    found = caught(throw.remote(Mine("m")))
    copy = pickle.loads(ray.cloudpickle.dumps(found))
    say(kinds(copy), str(copy.cause))


@program
def errors_as_values():
    @ray.remote
    def give():
        return ValueError("a value")

    say(repr(ray.get(give.remote())))
    say(repr(ray.get(ray.put(KeyError("k")))))


@program
def a_task_error_as_value():
    found = caught(throw.remote(ValueError("v")))
    outcome(lambda: kinds(ray.get(ray.put(found))))
    outcome(lambda: kinds(ray.get(ray.put([found]))[0]))


@program
def groups_of_exceptions():
    found = caught(throw.remote(ExceptionGroup("several", [ValueError("a"), KeyError("b")])))
    say(kinds(found), isinstance(found, ExceptionGroup))
    outcome(lambda: [type(error).__name__ for error in found.exceptions])
    outcome(lambda: found.message)
    try:
        ray.get(throw.remote(ExceptionGroup("several", [ValueError("a"), KeyError("b")])))
    except* ValueError as group:
        say("values", len(group.exceptions))
    except* KeyError as group:
        say("keys", len(group.exceptions))


@program
def an_argument_that_failed():
    @ray.remote
    def after(value):
        return value

    found = caught(after.remote(throw.remote(Mine("m"))))
    say(kinds(found), type(found.cause).__name__)
    found = caught(after.remote(after.remote(throw.remote(ValueError("v")))))
    say(kinds(found), type(found.cause).__name__)
    outcome(lambda: ray.get(after.remote([throw.remote(ValueError("v"))]))[0].hex() != "")


@program
def nested_failures():
    @ray.remote
    def outer():
        return ray.get(throw.remote(Mine("inner")))

    found = caught(outer.remote())
    say(kinds(found), kinds(found.cause), isinstance(found, Mine))

    @ray.remote
    def handles():
        try:
            ray.get(throw.remote(Mine("inner")))
        except Mine as error:
            return type(error).__name__

    say(ray.get(handles.remote()))


@program
def failures_of_arguments_reach_actors():
    @ray.remote
    class A:
        def f(self, value):
            return value

        def alive(self):
            return True

    a = A.remote()
    say(kinds(caught(a.f.remote(throw.remote(Mine("m"))))))
    say(ray.get(a.alive.remote()))

    @ray.remote
    class B:
        def __init__(self, value):
            pass

        def f(self):
            return 1

    say(kinds(caught(B.remote(throw.remote(Mine("m"))).f.remote())))


@program
def exits_and_interrupts():
    @ray.remote(max_retries=0)
    def leave(code):
        raise SystemExit(code)

    say(kinds(caught(leave.remote(1))))
    say(kinds(caught(leave.remote(0))))

    @ray.remote(max_retries=0)
    def interrupted():
        raise KeyboardInterrupt

    say(kinds(caught(interrupted.remote())))


@program
def ray_errors_raised_by_the_user():
    for error in [
        ray.exceptions.GetTimeoutError("mine"),
        ray.exceptions.ObjectLostError("id", "owner", "stack"),
        ray.exceptions.RayActorError(),
        ray.exceptions.TaskCancelledError(),
        ray.exceptions.WorkerCrashedError(),
    ]:
        found = caught(throw.remote(error))
        say(type(error).__name__, kinds(found))


@program
def get_of_several_raises_the_first_error():
    refs = [ray.put(1), throw.remote(KeyError("k")), throw.remote(ValueError("v"))]
    outcome(ray.get, refs)
    outcome(ray.get, refs[1:2] * 2)


@program
def the_same_error_twice():
    ref = throw.remote(Mine("m"))
    first, second = caught(ref), caught(ref)
    say(type(first) is not None, str(first) == str(second), first is second)


@program
def raising_again_elsewhere():
    @ray.remote
    def again(error):
        raise error

    found = caught(throw.remote(Mine("m")))
    say(kinds(caught(again.remote(found))))


@program
def classes_that_cannot_be_derived_from():
    class Final(Exception):
        def __init_subclass__(cls, **kwargs):
            raise TypeError("no children")

    found = caught(throws.remote(lambda: Final("f")))
    say(kinds(found), type(found.cause).__name__, "f" in str(found))


@program
def exceptions_with_slots_and_properties():
    class Slots(Exception):
        __slots__ = ("x",)

        def __init__(self, x=1):
            super().__init__("slots")
            self.x = x

    class Property(Exception):
        @property
        def double(self):
            return self.args[0] * 2

    found = caught(throws.remote(Slots))
    say(kinds(found), isinstance(found, Slots))
    outcome(lambda: found.x)
    found = caught(throws.remote(lambda: Property(4)))
    outcome(lambda: found.cause.double)


@program
def constructors_of_the_classes():
    for name in [
        "RayError",
        "RayActorError",
        "TaskCancelledError",
        "GetTimeoutError",
        "WorkerCrashedError",
    ]:
        outcome(lambda: kinds(getattr(ray.exceptions, name)()))  # noqa: B023
    outcome(lambda: kinds(RayTaskError("f", "traceback", ValueError("v"))))
    outcome(lambda: kinds(RayTaskError("f", "traceback", ValueError("v")).as_instanceof_cause()))
    outcome(lambda: RayTaskError("f", "traceback", ValueError("v")).cause)
    outcome(lambda: kinds(ray.exceptions.ObjectLostError("a", "b", "c")))


if __name__ == "__main__":
    main()
