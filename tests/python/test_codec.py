# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Values come back as they went, whichever way they travel."""

import math
import threading

import numpy as np
import pytest
import sheaf

pytestmark = pytest.mark.usefixtures("node")

PLAIN = [
    None, True, False, 0, 1, -1, 127, 128, -32, -33, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63), 2**63, 2**200,
    0.0, -0.0, 1.5, math.inf, "", "a", "ä\u2028", "x" * 31, "x" * 32, "x" * 300, "y" * 70_000, "\udc80", b"", b"\0" * 100, b"z" * 300_000,
    (), (1,), [], [1, [2, [3]]], {}, {"a": 1, 2: (3, None)}, (1, [2, {3}]), list(range(100)), list(range(5000)), {i: i for i in range(600)},
    1j, {3}, frozenset("ab"), range(3), ..., bytearray(b"ab"),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=lambda v: repr(v)[:30])
def test_a_value_and_its_type_come_back(value):
    back = sheaf.get(sheaf.put(value))
    assert back == value and type(back) is type(value)


def test_nan_and_signed_zero_come_back():
    assert math.isnan(sheaf.get(sheaf.put(math.nan)))
    assert math.copysign(1, sheaf.get(sheaf.put(-0.0))) == -1


def test_bool_and_int_keys_stay_apart():
    assert [type(k) for k in sheaf.get(sheaf.put([True, 1]))] == [bool, int]


def test_one_list_that_comes_twice_stays_one():
    inner = [1]
    a, b = sheaf.get(sheaf.put([inner, inner]))
    assert a is b


def test_a_list_that_holds_itself_comes_back():
    loop = []
    loop.append(loop)
    back = sheaf.get(sheaf.put(loop))
    assert back[0] is back


class Text(str):
    pass


def test_subclasses_of_builtins_keep_their_class():
    assert type(sheaf.get(sheaf.put(Text("a")))).__name__ == "Text"


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1", "c16", "?", "S3", "U2", "M8[s]", object])
def test_arrays_of_all_types_come_back(dtype):
    array = np.array([1, 0, 1]).astype(dtype)
    back = sheaf.get(sheaf.put(array))
    assert back.dtype == array.dtype and np.array_equal(back, array)


@pytest.mark.parametrize(
    "array", [np.zeros(0), np.zeros((3, 0, 2)), np.float64(1.5) + np.zeros(()), np.arange(12).reshape(3, 4).T, np.arange(10)[::3]],
    ids=["empty", "empty 3-D", "0-D", "transposed", "strided"],
)  # fmt: skip
def test_arrays_of_all_shapes_come_back(array):
    back = sheaf.get(sheaf.put(array))
    assert back.shape == array.shape and np.array_equal(back, array)


def test_an_array_is_a_read_only_view_of_shared_memory():
    ref = sheaf.put(np.arange(100_000))
    one, two = sheaf.get(ref), sheaf.get(ref)
    assert one.ctypes.data == two.ctypes.data and one.ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        one[0] = 1


def test_a_view_keeps_its_object():
    view = sheaf.get(sheaf.put(np.arange(200_000)))[1000:1010]
    for i in range(20):
        sheaf.put(np.full(200_000, i))
    assert list(view) == list(range(1000, 1010))


def test_small_arrays_in_arguments_are_whole_after_the_call():
    @sheaf.remote
    class Keeper:
        def keep(self, array):
            self.array = array

        def kept(self):
            return self.array

    keeper = Keeper.remote()
    sheaf.get(keeper.keep.remote(np.arange(50)))
    sheaf.get([keeper.kept.remote() for _ in range(100)])
    assert list(sheaf.get(keeper.kept.remote())) == list(range(50))


def test_what_the_fields_of_an_array_have_as_metadata_comes_back():
    unit = np.dtype("f8", metadata={"double": lambda x: 2 * x, "reference": sheaf.put(5)})
    back = sheaf.get(sheaf.put(np.zeros(2, np.dtype([("x", unit)]))))
    metadata = back.dtype.fields["x"][0].metadata
    assert metadata["double"](4) == 8 and sheaf.get(metadata["reference"]) == 5


def test_references_travel_inside_values():
    inner = sheaf.put("inner")
    for value in ([inner], {"a": (inner,)}, [inner, {1, 2}]):
        outer = sheaf.put(value)
        back = sheaf.get(outer)
        while not isinstance(back, sheaf.ObjectRef):
            back = back["a"] if isinstance(back, dict) else back[0]
        assert sheaf.get(back) == "inner" and back == inner and hash(back) == hash(inner)


@pytest.mark.parametrize("make", [list, tuple, lambda refs: {"all": [refs, 1]}])
def test_many_references_travel_inside_one_value(make):
    inner = [sheaf.put(i) for i in range(3000)]
    inner[7] = inner[5]
    outer = sheaf.put(make(inner))
    back = sheaf.get(outer)
    assert type(back) is type(make([]))
    back = back["all"][0] if isinstance(back, dict) else back
    assert list(back) == inner
    del inner
    assert sheaf.get(list(back)) == [5 if i == 7 else i for i in range(3000)]


def test_functions_and_classes_of_the_script_travel():
    factor = 3
    assert sheaf.get(sheaf.put(lambda x: x * factor))(2) == 6


def test_what_cannot_be_sent_is_named_with_its_path():
    class Model:
        def __init__(self):
            self._lock = threading.Lock()

    with pytest.raises(TypeError) as caught:
        sheaf.put([1, {"model": Model()}])
    lines = str(caught.value).splitlines()
    assert len(lines) <= 6
    assert "value[1]['model']._lock" in lines[0] and "lock" in lines[0]


class Link:
    def __init__(self, next_one):
        self.next_one = next_one


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: (inner, 1), Link])
def test_what_is_nested_too_deeply_is_said_to_be(wrap):
    value = None
    for _ in range(5000):
        value = wrap(value)
    same = sheaf.remote(lambda value: value)
    for send in (sheaf.put, same.remote):
        with pytest.raises(TypeError, match="nested too deeply") as caught:
            send(value)
        assert len(str(caught.value).splitlines()) <= 6
    while value is not None:  # Before its end calls itself as often.
        value = value.next_one if isinstance(value, Link) else value[0]


def test_a_part_whose_own_code_does_not_end_is_named():
    class Model:
        def __reduce__(self):
            return self.__reduce__()

    with pytest.raises(TypeError) as caught:
        sheaf.put([1, {"model": Model()}])
    assert "value[1]['model'] is a" in str(caught.value)


@sheaf.remote(num_cpus=0)
def double(x):
    return 2 * x


class Calling:
    """Makes calls while it is pickled, and again while it is read."""

    def __init__(self, n):
        self.n = n

    def __reduce__(self):
        return call_again, (self.n, sheaf.get(double.remote(self.n)), sheaf.put(self.n))


def call_again(n, doubled, ref):
    value = Calling(n)
    value.seen = (doubled, sheaf.get(ref), sheaf.get(double.remote(doubled)))
    return value


def test_a_value_may_make_calls_while_it_is_pickled_and_read():
    @sheaf.remote(num_cpus=0)
    def seen(value):
        return value.seen

    same = sheaf.remote(num_cpus=0)(lambda value: value)
    for n in range(4):
        assert sheaf.get(seen.remote(Calling(n))) == (2 * n, n, 4 * n)
        for ref in (sheaf.put([Calling(n)]), same.remote([Calling(n)])):
            assert sheaf.get(ref)[0].seen == (2 * n, n, 4 * n)


def test_a_custom_serializer_is_used_and_forgotten():
    class Locked:
        def __init__(self, n):
            self.n, self.lock = n, threading.Lock()

    sheaf.util.register_serializer(Locked, serializer=lambda v: v.n, deserializer=Locked)
    try:
        assert sheaf.get(sheaf.put([Locked(7)]))[0].n == 7
    finally:
        sheaf.util.deregister_serializer(Locked)
    with pytest.raises(TypeError):
        sheaf.put(Locked(7))


def test_a_long_tuple_of_references_that_comes_often_is_written_once():
    many = tuple(sheaf.put(i) for i in range(2000))
    value = [(i, many) for i in range(300)]  # 600,000 in all: more than a value may hold.
    assert sheaf.get(sheaf.put(value)) == value
    again = [many[0]] * 600_000
    assert sheaf.get(sheaf.put(again)) == again
