# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Arguments of tasks, constructors and methods: signatures, references, copies, sizes."""

import functools

import ray
from program import main, outcome, program, say


@ray.remote
def none():
    return "none"


@ray.remote
def two(a, b):
    return a, b


@ray.remote
def anything(*args, **kwargs):
    return args, kwargs


@ray.remote
class Keeper:
    def __init__(self, a, b=2, *, c=3):
        self.given = (a, b, c)

    def get(self, x=0, *rest, **named):
        return self.given, x, rest, named

    def two(self, a, b):
        return a, b

    @staticmethod
    def static(a):
        return a

    @classmethod
    def of_class(cls, a):
        return cls.__name__, a


@program
def missing_arguments():
    outcome(two.remote, words=["missing a required argument: 'a'"])
    outcome(two.remote, 1, words=["missing a required argument: 'b'"])
    outcome(two.remote, b=1, words=["missing a required argument: 'a'"])


@program
def too_many_arguments():
    outcome(two.remote, 1, 2, 3, words=["too many positional arguments"])
    outcome(none.remote, 1, words=["too many positional arguments"])
    outcome(two.remote, 1, 2, a=1, words=["multiple values for argument 'a'"])
    outcome(none.remote, a=1, words=["got an unexpected keyword argument 'a'"])


@program
def unknown_keywords():
    outcome(two.remote, 1, b=2, c=3, words=["got an unexpected keyword argument 'c'"])
    outcome(two.remote, 1, 2, num_cpus=1, words=["got an unexpected keyword argument 'num_cpus'"])


@program
def stars():
    say(ray.get(anything.remote()))
    say(ray.get(anything.remote(1, 2, x=3, self=4, args=5, kwargs=6)))
    say(ray.get(anything.remote(*range(20), **{str(k): k for k in range(3)})))


@program
def keyword_only_and_positional_only():
    @ray.remote
    def f(a, /, b, *, c, d=4):
        return a, b, c, d

    say(ray.get(f.remote(1, 2, c=3)), ray.get(f.remote(1, b=2, c=3, d=5)))
    outcome(f.remote, 1, 2, words=["missing a required argument: 'c'"])
    outcome(f.remote, a=1, b=2, c=3, words=["'a'"])
    outcome(f.remote, 1, 2, 3, words=["too many positional arguments"])


@program
def constructors():
    say(ray.get(Keeper.remote(1).get.remote()))
    say(ray.get(Keeper.remote(1, b=5, c=6).get.remote()))
    outcome(Keeper.remote, words=["missing a required argument: 'a'"])
    outcome(Keeper.remote, 1, 2, 3, words=["too many positional arguments"])
    outcome(Keeper.remote, 1, d=3, words=["got an unexpected keyword argument 'd'"])


@program
def a_class_without_constructor():
    @ray.remote
    class Plain:
        def get(self):
            return 1

    say(ray.get(Plain.remote().get.remote()))
    outcome(Plain.remote, 1, words=["too many positional arguments"])
    outcome(Plain.remote, a=1, words=["got an unexpected keyword argument 'a'"])


@program
def methods():
    keeper = Keeper.remote(1)
    say(ray.get(keeper.get.remote(1, 2, 3, k=4)))
    say(ray.get(keeper.static.remote(5)), ray.get(keeper.of_class.remote(6)))
    outcome(keeper.two.remote, 1, words=["missing a required argument: 'b'"])
    outcome(keeper.two.remote, 1, 2, 3, words=["too many positional arguments"])
    outcome(keeper.two.remote, 1, 2, c=3, words=["got an unexpected keyword argument 'c'"])
    outcome(keeper.static.remote, words=["missing a required argument: 'a'"])
    outcome(keeper.two, 1, 2, words=["cannot be called directly", "two.remote()"])


@program
def methods_by_a_handle_that_travelled():
    @ray.remote
    def call(keeper):
        try:
            keeper.two.remote(1)
        except TypeError as error:
            return "missing a required argument" in str(error)

    say(ray.get(call.remote(Keeper.remote(1))))
    kept = Keeper.options(name="kept").remote(1)
    outcome(ray.get_actor("kept").two.remote, 1, 2, 3, words=["too many positional arguments"])
    outcome(ray.get_actor("kept").two.remote, 1, words=["missing a required argument: 'b'"])
    del kept


@program
def defaults_are_evaluated_once():
    made = []

    def default():
        made.append(1)
        return "default"

    @ray.remote
    def f(a=default()):  # noqa: B008
        return a

    say(ray.get([f.remote(), f.remote()]), len(made))


@program
def the_signature_of_a_wrapper_counts():
    def only_keywords(function):
        def inner(**kwargs):
            return function(**kwargs)

        return inner

    @ray.remote
    @only_keywords
    def f(a):
        return a

    say(ray.get(f.remote(a=1)))
    outcome(f.remote, 1, words=["too many positional arguments"])


@program
def wrapped_functions_with_another_signature():
    def with_extra(function):
        @functools.wraps(function)
        def inner(extra, *args):
            return extra, function(*args)

        return inner

    @ray.remote
    @with_extra
    def f(a):
        return a

    outcome(lambda: ray.get(f.remote(1, 2)))
    outcome(lambda: ray.get(f.remote(1)))


@program
def references_stand_for_values():
    ref = ray.put(5)
    say(ray.get(two.remote(ref, b=ref)))
    chained = none.remote()
    for _ in range(3):
        chained = two.remote(chained, 0)
    say(ray.get(chained))


@program
def references_inside_containers_stay():
    ref = ray.put(5)

    @ray.remote
    def look(list_, dict_, tuple_, nested):
        return [type(x).__name__ for x in (list_[0], dict_["k"], tuple_[0], nested[0][0])] + [
            ray.get(list_[0]),
            ray.get(nested[0][0]),
        ]

    say(ray.get(look.remote([ref], {"k": ref}, (ref,), [[ref]])))


@program
def references_in_objects_and_closures():
    ref = ray.put("inside")

    class Box:
        def __init__(self, ref):
            self.ref = ref

    @ray.remote
    def by_closure():
        return ray.get(ref)

    @ray.remote
    def open_box(box):
        return ray.get(box.ref)

    say(ray.get(by_closure.remote()), ray.get(open_box.remote(Box(ref))))
    say(ray.get(open_box.remote(ray.put(Box(ref)))))


@program
def arguments_are_copies():
    @ray.remote
    def change(items):
        items.append("changed")
        return items

    mine = [1]
    ref = change.remote(mine)
    mine.append(2)
    say(ray.get(ref), mine)
    stored = ray.put([1])
    say(ray.get(change.remote(stored)), ray.get(stored))


@program
def the_same_object_twice_is_two():
    @ray.remote
    def same(a, b):
        return a is b

    items = [1]
    say(ray.get(same.remote(items, items)))


@program
def large_arguments():
    @ray.remote
    def sizes(a, b, c):
        return len(a), len(b), len(c["k"])

    say(ray.get(sizes.remote(b"x" * 200_000, "y" * 3_000_000, {"k": list(range(100_000))})))
    say(ray.get(anything.remote(*[b"x" * 50_000] * 40))[0][39][:1])


@program
def very_many_arguments():
    args, kwargs = ray.get(anything.remote(*range(1000), **{f"k{n}": n for n in range(200)}))
    say(len(args), len(kwargs), args[-1], kwargs["k199"])


@program
def the_order_of_keywords():
    say(list(ray.get(anything.remote(z=1, a=2, m=3))[1]))


@program
def odd_names_and_values():
    say(ray.get(anything.remote(**{"with space": 1, "ä": 2, "": 3})))
    say(ray.get(two.remote(None, ...)), ray.get(two.remote(NotImplemented, float("inf"))))
    say(ray.get(two.remote(int, len)))
    say(ray.get(two.remote(2**100, 1j)), ray.get(two.remote(b"", frozenset([1]))))


@program
def types_survive():
    import collections
    import datetime
    import decimal
    import enum
    import pathlib

    class Color(enum.Enum):
        RED = 1

    Point = collections.namedtuple("Point", "x y")

    @ray.remote
    def names(*values):
        return [type(v).__name__ for v in values], values[0] is not None

    values = [True, Point(1, 2), Color.RED, collections.OrderedDict(a=1), decimal.Decimal("1.5")]
    values += [datetime.date(2020, 1, 1), pathlib.Path("x"), complex(1, 2), range(3), memoryview]
    say(ray.get(names.remote(*values)))
    back = ray.get(ray.put(values))
    say(back[1], back[3], back[4], back[7], back[8], back[2].name)


@program
def an_actor_handle_as_argument():
    @ray.remote
    def ask(keeper, others):
        return ray.get([keeper.two.remote(1, 2), others[0].two.remote(3, 4)])

    keeper = Keeper.remote(1)
    say(ray.get(ask.remote(keeper, [keeper])))


@program
def arguments_of_methods_by_reference():
    keeper = Keeper.remote(ray.put("a"))
    say(ray.get(keeper.two.remote(ray.put(1), b=keeper.static.remote(2))))
    say(ray.get(keeper.get.remote())[0])


if __name__ == "__main__":
    main()
