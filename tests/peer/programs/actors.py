# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Actors: how classes become actors, what their handles and methods are."""

import copy
import dataclasses
import inspect
import pickle
import typing

import ray
from program import main, outcome, program, say


@ray.remote
class Counter:
    """Counts."""

    LIMIT = 7

    def __init__(self, start=0, *, step=1):
        self.value = start
        self.step = step

    def add(self, by=1):
        """Adds."""
        self.value += by * self.step
        return self.value

    def read(self):
        return self.value


@program
def creation_and_calls():
    counter = Counter.remote(10, step=2)
    say(ray.get(counter.add.remote()), ray.get(counter.add.remote(by=5)))
    say(ray.get([counter.add.remote() for _ in range(3)]))
    say(ray.get(counter.read.remote()))


@program
def not_made_directly():
    outcome(Counter, words=["cannot be instantiated directly", "Counter.remote()"])
    counter = Counter.remote()
    outcome(counter.add, words=["cannot be called directly", "add.remote()"])


@program
def constructor_arguments_are_checked():
    outcome(Counter.remote, 1, 2, words=["too many positional arguments"])
    outcome(Counter.remote, other=1, words=["got an unexpected keyword argument 'other'"])
    outcome(Counter.options(num_cpus=1).remote, 1, start=2, words=["multiple values"])

    @ray.remote
    class Needs:
        def __init__(self, a, b):
            pass

    outcome(Needs.remote, 1, words=["missing a required argument: 'b'"])


@program
def method_arguments_are_checked():
    counter = Counter.remote()
    outcome(counter.add.remote, 1, 2, words=["too many positional arguments"])
    outcome(counter.add.remote, other=1, words=["got an unexpected keyword argument 'other'"])
    outcome(counter.read.remote, 1, words=["too many positional arguments"])
    say(ray.get(counter.read.remote()))


@program
def no_constructor_takes_no_arguments():
    @ray.remote
    class Empty:
        def me(self):
            return type(self).__name__

    say(ray.get(Empty.remote().me.remote()))
    outcome(Empty.remote, 1, words=["too many positional arguments"])


@program
def missing_methods():
    counter = Counter.remote()
    outcome(getattr, counter, "substract", words=["has no attribute 'substract'"])
    outcome(getattr, counter, "LIMIT", words=["has no attribute 'LIMIT'"])
    outcome(getattr, counter, "value", words=["has no attribute 'value'"])
    say(hasattr(counter, "add"), hasattr(counter, "__len__"), hasattr(counter, "__enter__"))


@program
def what_dir_shows():
    counter = Counter.remote()
    names = dir(counter)
    say(sorted(n for n in names if not n.startswith("__")))
    say([n in names for n in ("__init__", "__ray_ready__", "__ray_terminate__", "__ray_call__")])


@program
def special_methods_of_a_class():
    @ray.remote
    class Special:
        def __call__(self, x):
            return ("called", x)

        def __len__(self):
            return 3

        def __getitem__(self, key):
            return ("item", key)

        def __contains__(self, key):
            return key == 1

        def _private(self):
            return "private"

        def __mangled(self):
            return "mangled"

    special = Special.remote()
    say(ray.get(special.__call__.remote(1)), ray.get(special.__len__.remote()))
    say(ray.get(special.__getitem__.remote("k")), ray.get(special.__contains__.remote(1)))
    say(ray.get(special._private.remote()), ray.get(special._Special__mangled.remote()))
    outcome(len, special)
    outcome(lambda: special[1])


@program
def built_in_methods():
    counter = Counter.remote(5)
    say(ray.get(counter.__ray_ready__.remote()))
    say(ray.get(counter.__ray_call__.remote(lambda self: self.value)))
    say(ray.get(counter.__ray_call__.remote(lambda self, x, y=0: self.value + x + y, 1, y=2)))
    outcome(ray.get, counter.__ray_call__.remote(lambda self: 1 / 0), words=["division by zero"])
    outcome(ray.get, counter.__ray_terminate__.remote())


@program
def an_attribute_hides_no_method():
    @ray.remote
    class Box:
        def __init__(self):
            self.items = [1, 2]

        def items(self):
            return "the method"

        def held(self):
            return self.__dict__["items"]

    box = Box.remote()
    say(ray.get([box.items.remote(), box.held.remote()]))


@program
def an_attribute_hides_no_async_method():
    @ray.remote
    class Box:
        def __init__(self):
            self.items = [1, 2]

        async def items(self):
            return "the method"

    say(ray.get(Box.remote().items.remote()))


@program
def static_and_class_methods():
    @ray.remote
    class Mixed:
        base = 100

        @staticmethod
        def add(a, b=1):
            return a + b

        @classmethod
        def of(cls, x):
            return cls.base + x

        @property
        def size(self):
            return 5

    mixed = Mixed.remote()
    say(ray.get([mixed.add.remote(1), mixed.add.remote(1, b=5), mixed.of.remote(2)]))
    outcome(mixed.add.remote, words=["missing a required argument: 'a'"])
    outcome(mixed.of.remote, 1, 2, words=["too many positional arguments"])
    outcome(getattr, mixed, "size")
    say(hasattr(Mixed, "of"))


class Animal:
    sound = "..."

    def __init__(self, name):
        self.name = name

    def speak(self):
        return f"{self.name}: {self.sound}"

    @ray.method(num_returns=2)
    def two(self):
        return self.name, self.sound


@program
def inheritance_from_a_plain_class():
    @ray.remote
    class Dog(Animal):
        sound = "wow"

        def __init__(self, name, age):
            super().__init__(name)
            self.age = age

        def speak(self):
            return super().speak() + "!"

    dog = Dog.remote("Rex", 3)
    say(ray.get(dog.speak.remote()), ray.get(list(dog.two.remote())))
    say(ray.get(dog.__ray_call__.remote(lambda self: isinstance(self, Animal))))


@program
def inheritance_from_an_actor_class_is_refused():
    def define():
        class Sub(Counter):
            pass

    outcome(define, words=["Inheriting from actor classes is not currently supported"])


@program
def a_class_made_remote_later():
    Remote = ray.remote(Animal)
    say(ray.get(Remote.remote("Tom").speak.remote()), Animal("Sam").speak())
    Two = ray.remote(num_cpus=0)(Animal)
    say(ray.get(Two.remote("Tim").speak.remote()))


@program
def what_is_no_class_is_no_actor():
    outcome(ray.remote, 5, words=["ray.remote decorator"])
    outcome(ray.remote(num_cpus=0), "text")


@program
def dataclass_actors():
    @ray.remote
    @dataclasses.dataclass
    class Point:
        x: int
        y: int = 2

        def total(self):
            return self.x + self.y

    say(ray.get(Point.remote(1).total.remote()), ray.get(Point.remote(1, y=9).total.remote()))
    outcome(Point.remote, words=["missing a required argument: 'x'"])
    say(ray.get(Point.remote(3).__ray_call__.remote(lambda self: dataclasses.asdict(self))))


@program
def generic_actors():
    T = typing.TypeVar("T")

    @ray.remote
    class Stack(typing.Generic[T]):
        def __init__(self):
            self.things: list[T] = []

        def push(self, thing: T) -> int:
            self.things.append(thing)
            return len(self.things)

    stack = Stack.remote()
    say(ray.get([stack.push.remote(1), stack.push.remote("a")]))


@program
def abstract_classes():
    import abc

    class Base(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    @ray.remote
    class Whole(Base):
        def f(self):
            return "whole"

    say(ray.get(Whole.remote().f.remote()))
    outcome(ray.remote, Base)


@program
def handles_are_passed_on():
    @ray.remote
    def bump(counter, times):
        return [ray.get(counter.add.remote()) for _ in range(times)]

    @ray.remote
    class Holder:
        def __init__(self, held):
            self.held = held

        def give(self):
            return self.held["c"]

    counter = Counter.remote()
    say(ray.get(bump.remote(counter, 3)))
    back = ray.get(Holder.remote({"c": counter}).give.remote())
    say(back == counter, ray.get(back.add.remote()), ray.get(ray.put([counter]))[0] == counter)


@program
def handles_are_equal_and_hash():
    a, b = Counter.remote(), Counter.remote()
    again = pickle.loads(pickle.dumps(a))
    say(a == again, hash(a) == hash(again), a == b, a != b, a == 1, len({a, again, b}))
    say(copy.copy(a) == a, type(a).__name__, isinstance(a, ray.actor.ActorHandle))


@program
def representations():
    counter = Counter.remote()
    say(repr(counter), str(counter) == repr(counter))
    say(repr(counter).startswith(f"Actor(Counter, {counter._actor_id.hex()}"))
    say(type(counter.add).__name__, counter._actor_id.hex() == counter._ray_actor_id.hex())
    say(isinstance(Counter, ray.actor.ActorClass), isinstance(counter.add, ray.actor.ActorMethod))


@program
def the_class_itself():
    say(Counter.LIMIT)
    say(Counter.__module__ == __name__, inspect.isclass(Counter), callable(Counter.remote))
    say(Counter.__ray_metadata__.class_name)
    original = Counter.__ray_metadata__.modified_class
    say(original.__name__, original(4).add(2))


@program
def handles_cannot_be_made_by_hand():
    counter = Counter.remote()
    outcome(setattr, counter, "note", 1)
    say(ray.get(counter.read.remote()))
    method = counter.add
    del counter
    say(ray.get(method.remote()))


@program
def a_handle_of_itself():
    @ray.remote
    class Self:
        def me(self):
            return ray.get_runtime_context().current_actor

        def id(self):
            return ray.get_runtime_context().get_actor_id()

    one = Self.remote()
    say(ray.get(one.me.remote()) == one, ray.get(one.id.remote()) == one._actor_id.hex())
    say(ray.get_runtime_context().get_actor_id())
    outcome(lambda: ray.get_runtime_context().current_actor)


@program
def actors_make_actors():
    @ray.remote(num_cpus=0)
    class Parent:
        def __init__(self):
            self.child = Counter.options(num_cpus=0).remote(100)

        def add(self):
            return ray.get(self.child.add.remote())

        def lend(self):
            return self.child

    parent = Parent.remote()
    say(ray.get(parent.add.remote()))
    say(ray.get(ray.get(parent.lend.remote()).add.remote()))


@program
def constructor_takes_references():
    @ray.remote
    def ten():
        return 10

    say(ray.get(Counter.remote(ten.remote(), step=ray.put(3)).add.remote()))

    @ray.remote
    class Nested:
        def __init__(self, refs):
            self.kind = type(refs[0]).__name__

        def get(self):
            return self.kind

    say(ray.get(Nested.remote([ten.remote()]).get.remote()))


@program
def classes_defined_in_functions_capture():
    offset = 5

    def helper(x):
        return x * offset

    @ray.remote
    class Closure:
        def run(self, x):
            return helper(x)

    say(ray.get(Closure.remote().run.remote(3)))


@program
def what_captures_a_lock_cannot_be_sent():
    import threading

    lock = threading.Lock()

    @ray.remote
    class Locked:
        def run(self):
            return lock

    outcome(Locked.remote, words=["pickle", "lock"])
    outcome(Counter.remote, lock, words=["pickle", "lock"])
    counter = Counter.remote()
    outcome(counter.add.remote, lock, words=["pickle", "lock"])


if __name__ == "__main__":
    main()
