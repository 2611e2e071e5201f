# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How values travel: serializers, __reduce__, arrays, what cannot, what is said then."""

import collections
import dataclasses
import pickle
import threading

import numpy
import ray
from program import main, outcome, program, say


@ray.remote
def same(value):
    return value


@ray.remote
def ask(function, *args):
    return function(*args)


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)


class Held:
    """Has a lock, which cannot travel."""

    def __init__(self, value):
        self.value = value
        self.lock = threading.Lock()


def round_trip(value):
    return ray.get(same.remote(ray.put(value)))


@program
def classes_of_the_program():
    say(round_trip(Point(1, 2)) == Point(1, 2))

    @dataclasses.dataclass
    class Data:
        a: int
        b: list

    say(round_trip(Data(1, [2])))
    Named = collections.namedtuple("Named", "a b")
    say(round_trip(Named(1, b=2)))


@program
def functions_travel():
    say(round_trip(lambda x: x + 1)(2))
    number = 10

    def closure(x):
        return x + number

    say(
        round_trip(closure)(1), round_trip(len)([1, 2]), round_trip(Point(3, 4).__eq__)(Point(3, 4))
    )


@program
def reduce_is_obeyed():
    class Custom:
        def __init__(self, value):
            self.value = value

        def __reduce__(self):
            return Custom, (self.value + "!",)

    say(ray.get(ray.put(Custom("a"))).value)
    say(ray.get(same.remote(Custom("a"))).value)


@program
def getstate_and_setstate():
    class Custom:
        def __init__(self):
            self.lock = threading.Lock()
            self.value = 5

        def __getstate__(self):
            return {"value": self.value}

        def __setstate__(self, state):
            self.value = state["value"]
            self.lock = None

    found = round_trip(Custom())
    say(found.value, found.lock)


@program
def registered_serializers():
    outcome(lambda: ray.put(Held(1)), words=["cannot pickle '_thread.lock' object"])
    ray.util.register_serializer(
        Held, serializer=lambda h: h.value, deserializer=lambda v: Held(v + 1)
    )
    outcome(lambda: ray.get(ray.put(Held(1))).value)
    outcome(lambda: ray.get(ask.remote(lambda h: h.value, Held(1))))
    outcome(lambda: ray.get(ask.remote(lambda hs: hs[0].value, [Held(1)])))
    ray.util.deregister_serializer(Held)
    outcome(lambda: ray.put(Held(1)), words=["cannot pickle '_thread.lock' object"])


@program
def registering_wrongly():
    outcome(ray.util.register_serializer, Held)
    outcome(ray.util.register_serializer, Held, serializer=len)
    outcome(ray.util.deregister_serializer, Point)


@program
def arguments_that_cannot_travel():
    words = ["Could not serialize the argument", "cannot pickle '_thread.lock' object", "Held"]
    outcome(same.remote, threading.Lock(), words=words[:2])
    outcome(same.remote, Held(1), words=words)
    outcome(same.remote, [Held(1)], words=words[:2])
    outcome(ask.remote, len, words=[])


@program
def functions_that_cannot_travel():
    lock = threading.Lock()

    @ray.remote
    def uses():
        return lock

    outcome(
        uses.remote,
        words=["Could not serialize the function", "cannot pickle '_thread.lock' object"],
    )

    @ray.remote
    class Uses:
        def f(self):
            return lock

    outcome(
        Uses.remote,
        words=["Could not serialize the actor class", "cannot pickle '_thread.lock' object"],
    )


@program
def results_that_cannot_travel():
    outcome(
        lambda: ray.get(ask.remote(threading.Lock)), words=["cannot pickle '_thread.lock' object"]
    )
    outcome(lambda: ray.get(ask.remote(lambda: {"k": threading.Lock()})), words=["cannot pickle"])


@program
def errors_while_pickling():
    class Refuses:
        def __reduce__(self):
            raise RuntimeError("I stay here")

    outcome(ray.put, Refuses(), words=["I stay here"])
    outcome(same.remote, Refuses(), words=["I stay here"])
    outcome(lambda: ray.get(ask.remote(lambda: Refuses())), words=["I stay here"])


@program
def errors_while_unpickling():
    def explode():
        raise RuntimeError("never comes back")

    class Explodes:
        def __reduce__(self):
            return explode, ()

    ref = ray.put(Explodes())
    outcome(ray.get, ref, words=["never comes back"])
    outcome(lambda: ray.get(same.remote(Explodes())), words=["never comes back"])


@program
def arrays():
    for array in [
        numpy.arange(5),
        numpy.zeros((3, 4), order="F"),
        numpy.array(["a", "bc"]),
        numpy.array(5.0),
        numpy.zeros(0),
        numpy.arange(10)[::2],
        numpy.array([1, None, "x"], dtype=object),
        numpy.zeros(2, dtype=[("a", "i4"), ("b", "f8")]),
    ]:
        found = round_trip(array)
        say(found.dtype, found.shape, numpy.array_equal(found, array), found.flags.f_contiguous)


@program
def arrays_are_read_only():
    small, large = round_trip(numpy.arange(3)), round_trip(numpy.zeros(200_000))
    say(small.flags.writeable, large.flags.writeable)

    def change(array):
        array[0] = 1

    outcome(change, large, words=["assignment destination is read-only"])
    outcome(change, small, words=["assignment destination is read-only"])
    outcome(lambda: ray.get(ask.remote(lambda a: a.flags.writeable, numpy.arange(3))))
    outcome(lambda: ray.get(ask.remote(lambda a: a.flags.writeable, numpy.zeros(200_000))))
    outcome(lambda: ray.get(ask.remote(lambda: numpy.arange(3))).flags.writeable)
    mine = large.copy()
    outcome(change, mine)


@program
def arrays_inside_containers():
    found = round_trip({"a": [numpy.arange(3)], "b": (numpy.zeros(200_000),)})
    say(found["a"][0].flags.writeable, found["b"][0].flags.writeable)
    say(found["b"][0].shape, type(found["b"]).__name__)


@program
def arrays_are_aligned():
    for count in [1, 3, 1000, 200_000]:
        ref = ray.put(numpy.arange(count, dtype="f8"))
        say(count, ray.get(ref).ctypes.data % 64)
    both = ray.get(ray.put([numpy.zeros(3), numpy.zeros(200_001, dtype="u1"), numpy.zeros(1000)]))
    say([array.ctypes.data % 64 for array in both])


@program
def arrays_outlive_the_reference():
    array = ray.get(ray.put(numpy.arange(200_000)))
    view = array[10:20]
    del array
    for _ in range(3):
        ray.put(numpy.zeros(200_000))
    say(view.tolist())


@program
def arrays_share_memory():
    ref = ray.put(numpy.zeros(200_000))
    say(numpy.shares_memory(ray.get(ref), ray.get(ref)))


@program
def buffers_and_bytes():
    for value in [b"x" * 10, b"y" * 1_000_000]:
        found = round_trip(value)
        say(type(found).__name__, len(found), found == value)
    outcome(lambda: type(round_trip(pickle.PickleBuffer(b"abc"))).__name__)
    outcome(lambda: type(round_trip(memoryview(b"abc"))).__name__)


@program
def shared_parts_of_one_value():
    part = Point(1, 2)
    found = round_trip(Point(part, part))
    say(found.x is found.y)
    loop = Point(0, 0)
    loop.x = loop
    found = round_trip(loop)
    say(found.x is found)


@program
def recursive_lists():
    items = [1]
    items.append(items)
    outcome(lambda: len(round_trip(items)))


@program
def subclasses_of_builtins():
    class List(list):
        pass

    class Dict(dict):
        pass

    class Text(str):
        pass

    class Number(int):
        pass

    for value in [List([1]), Dict(a=1), Text("t"), Number(5)]:
        found = round_trip(value)
        say(type(found).__name__, found == value)
    found = round_trip([List([1]), {"k": Text("t")}])
    say(type(found[0]).__name__, type(found[1]["k"]).__name__)


@program
def numbers_and_texts():
    for value in [2**63 - 1, 2**63, -(2**63) - 1, 2**70 + 1, 0.1, float("nan"), -0.0, True]:
        say(round_trip(value), type(round_trip(value)).__name__)
    for value in ["\ud800", "😀", "a\0b", "x" * 70_000]:
        outcome(lambda: round_trip(value) == value)  # noqa: B023


@program
def dictionaries():
    say(round_trip({1: "a", "b": 2, (1, 2): 3, None: 4, 1.5: 5, b"x": 6, False: 7}))
    say(list(round_trip({"z": 1, "a": 2})))
    say(round_trip({"outer": {"inner": {1, 2}}}))


@program
def types_and_modules():
    import math

    say(round_trip(int) is int, round_trip(Point).__name__, round_trip(math).__name__)
    say(round_trip(ValueError), round_trip(type(None)), round_trip(collections.OrderedDict))


@program
def inspecting_serializability():
    ok, failures = ray.util.inspect_serializability(Point(1, 2), name="point")
    say(ok, failures)
    ok, failures = ray.util.inspect_serializability(Held(1), name="held")
    say(ok, len(failures) > 0, any("lock" in f.path[-1] for f in failures))


@program
def cloudpickle_of_the_package():
    data = ray.cloudpickle.dumps(Point(1, 2))
    say(type(data).__name__, pickle.loads(data) == Point(1, 2))
    say(ray.cloudpickle.loads(ray.cloudpickle.dumps(lambda: 5))())
    outcome(
        lambda: ray.cloudpickle.dumps(threading.Lock()),
        words=["cannot pickle '_thread.lock' object"],
    )


@program
def actor_handles_travel():
    @ray.remote
    class A:
        def f(self):
            return "f"

    a = A.remote()
    say(ray.get(ask.remote(lambda h: ray.get(h.f.remote()), a)))
    say(ray.get(ray.get(ray.put([a]))[0].f.remote()))
    say(ray.get(ask.remote(lambda m: ray.get(m.remote()), a.f)))


@program
def actor_handles_by_cloudpickle():
    @ray.remote
    class A:
        def f(self):
            return "f"

    a = A.remote()
    outcome(lambda: ray.get(ray.cloudpickle.loads(ray.cloudpickle.dumps(a)).f.remote()))


if __name__ == "__main__":
    main()
