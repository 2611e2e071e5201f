# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What users give, in any size: it works, or there is a typed error that names the size, the limit
and the remedy. Whatever is refused, driver, workers and node go on."""

import os
import pickle
import subprocess
import sys
import time

import pytest
import sheaf
from sheaf import _core
from sheaf.util import placement_group, remove_placement_group, state

INLINE = 64 << 10  # A value in a frame.
SUM = 1 << 20  # All values in a frame.
FUNCTION = 24 << 10  # A function in its template.
KEPT = 1 << 20  # A function in the key-value store.
PART = 4 << 20  # Of an object between nodes.
FRAME = 64 << 20


def around(*limits):
    return [limit + step for limit in limits for step in (-200, 0, 200)]


@sheaf.remote
def echo(value):
    return value


@sheaf.remote
def sizes_of(*args, **kwargs):
    return [len(value) for value in args] + [len(value) for value in kwargs.values()]


@sheaf.remote(num_returns="streaming")
def items(*values):
    yield from values


@sheaf.remote(max_retries=0)
def fail(size):
    raise ValueError("x" * size)


class Heavy(Exception):
    def __init__(self, payload):
        super().__init__("heavy")
        self.payload = payload


@sheaf.remote(max_retries=0)
def fail_with(size):
    raise Heavy(bytes(size))


@sheaf.remote
class Keeper:
    def __init__(self, *values, **named):
        self.values = values
        self.named = named

    def sizes(self):
        return [len(value) for value in (*self.values, *self.named.values())]

    def read(self):
        return [
            sheaf.get(value) if isinstance(value, sheaf.ObjectRef) else value
            for value in self.values[0]
        ]

    def echo(self, value):
        return value

    def pid(self):
        return os.getpid()


@pytest.fixture(autouse=True)
def lives(node):
    """After each case the same driver and node take calls."""
    yield
    assert sheaf.get(echo.remote("lives"), timeout=30) == "lives"


@pytest.fixture(scope="module")
def keeper(node):
    return Keeper.remote()


WAYS = {
    "put": lambda value, keeper: sheaf.get(sheaf.put(value)),
    "argument": lambda value, keeper: sheaf.get(echo.remote(value)),
    "keyword": lambda value, keeper: sheaf.get(echo.remote(value=value)),
    "reference": lambda value, keeper: sheaf.get(echo.remote(sheaf.put(value))),
    "of a method": lambda value, keeper: sheaf.get(keeper.echo.remote(value)),
    "item": lambda value, keeper: sheaf.get(next(items.remote(value))),
    "with a reference inside": lambda value, keeper: sheaf.get(echo.remote([value, sheaf.put(0)]))[
        0
    ],
}


@pytest.mark.parametrize("size", around(INLINE, SUM, PART))
@pytest.mark.parametrize("way", WAYS)
def test_a_value(way, size, keeper):
    assert WAYS[way](bytes(size), keeper) == bytes(size)


@pytest.mark.parametrize("way", ["put", "argument", "item", "of a method"])
def test_a_value_larger_than_a_frame(way, keeper):
    assert len(WAYS[way](bytes(FRAME + 1), keeper)) == FRAME + 1


# (how many, of which size): the sums lie below, at and above what a frame holds.
@pytest.mark.parametrize(
    "count, size",
    [
        (3, 400),
        (17, 62_000),
        (1_200, 62_000),
        (1_000, 4_000),
        (30_000, 4_000),
        (100_000, 0),
        (100_000, 700),
    ],
)
def test_many_arguments(count, size):
    values = [bytes([i % 251]) * size for i in range(count)]
    assert sheaf.get(sizes_of.remote(*values), timeout=60) == [size] * count


def test_many_arguments_keep_their_order_and_their_references():
    values = []
    for i in range(3_000):
        values += [
            i,
            bytes([i % 251]) * 900,
            sheaf.put(i) if i % 100 == 0 else str(i),
            [sheaf.put(-i)] if i % 500 == 0 else None,
        ]

    @sheaf.remote
    def check(*args):
        for i in range(3_000):
            number, data, other, inner = args[4 * i : 4 * i + 4]
            assert number == i and data == bytes([i % 251]) * 900
            assert other == (i if i % 100 == 0 else str(i))
            assert (sheaf.get(inner) == [-i]) if i % 500 == 0 else inner is None
        return len(args)

    assert sheaf.get(check.remote(*values), timeout=60) == 12_000


@pytest.mark.parametrize("count", [10, 1_001, 100_000])
def test_many_keywords(count, keeper):
    names = {f"name_{i}": b"x" * (i % 3) for i in range(count)}
    assert sheaf.get(sizes_of.remote(**names), timeout=60) == [i % 3 for i in range(count)]


@pytest.mark.parametrize("count", [10, 1_000, 1_200])
def test_many_references(count):
    refs = [sheaf.put(bytes(62_000)) for _ in range(count)]
    assert sum(sheaf.get(sizes_of.remote(*refs), timeout=60)) == 62_000 * count


@pytest.mark.parametrize("count", [10, 1_000, 1_200])
def test_many_results(count):
    @sheaf.remote(num_returns=count)
    def make():
        return [bytes([i % 251]) * 62_000 for i in range(count)]

    for i, value in enumerate(sheaf.get(make.remote(), timeout=60)):
        assert value == bytes([i % 251]) * 62_000


def test_more_than_a_call_can_have():
    with pytest.raises(ValueError, match="500001 arguments, at most 500000"):
        sizes_of.remote(*[0] * 500_001)
    with pytest.raises(ValueError, match="num_returns=60001: at most 60000"):
        echo.options(num_returns=60_001)


def test_many_references_in_one_value():
    refs = [sheaf.put(i) for i in range(5_000)]
    assert sheaf.get(sheaf.get(echo.remote(refs), timeout=60)[-1]) == 4_999


@pytest.mark.parametrize("size", around(FUNCTION, KEPT) + [9 << 20])
def test_a_function(size):
    captured = os.urandom(size)

    @sheaf.remote
    def function():
        return len(captured)

    assert sheaf.get([function.remote(), function.remote()], timeout=60) == [size, size]


@pytest.mark.parametrize("size", [FUNCTION, KEPT])
def test_a_class(size):
    captured = os.urandom(size)

    class Large:
        def size(self):
            return len(captured)

    assert sheaf.get(sheaf.remote(Large).remote().size.remote(), timeout=60) == size


def test_a_function_that_is_too_large():
    captured = bytes(96 << 20)
    with pytest.raises(
        ValueError, match=r"is too large \(96 MiB > FUNCTION_SIZE_ERROR_THRESHOLD=95 MiB\).*put\(\)"
    ):
        sheaf.remote(lambda: captured).remote()
    large = captured[: 12 << 20]
    with pytest.warns(UserWarning, match=r"is very large \(12 MiB\)"):
        assert sheaf.get(sheaf.remote(lambda: len(large)).remote(), timeout=60) == 12 << 20


@pytest.mark.parametrize("size", [100, 300_000, 5 << 20, FRAME + 1])
def test_the_words_of_an_exception(size):
    # One that is too large to be sent is known by its words alone.
    with pytest.raises(ValueError if size < 8 << 20 else sheaf.exceptions.RayTaskError) as raised:
        sheaf.get(fail.remote(size), timeout=60)
    words = str(raised.value)
    assert "xxx" in words and ("left out here" in words) == (size > 256 << 10)


@pytest.mark.parametrize("size", [100, INLINE, PART, 9 << 20, FRAME + 1])
def test_an_exception_with_a_payload(size):
    with pytest.raises(sheaf.exceptions.RayTaskError) as raised:
        sheaf.get(fail_with.remote(size), timeout=60)
    if size < 32 << 20:
        assert raised.value.cause.payload == bytes(size)
    else:
        assert f"it has {size}"[:8] in str(raised.value.cause) and "at most 33554432" in str(
            raised.value.cause
        )


def test_a_constructor_that_fails_with_a_payload():
    @sheaf.remote
    class Fails:
        def __init__(self):
            raise Heavy(bytes(FRAME + 1))

        def call(self):
            pass

    with pytest.raises(sheaf.exceptions.ActorDiedError, match="heavy"):
        sheaf.get(Fails.remote().call.remote(), timeout=60)


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_name(size):
    name = "n" * size
    assert sheaf.get(echo.options(name=name).remote(1), timeout=60) == 1
    with pytest.raises(sheaf.exceptions.RayTaskError):
        sheaf.get(fail.options(name=name).remote(1), timeout=60)


def test_a_name_that_is_too_long():
    with pytest.raises(ValueError, match="a name is too large: 2000000 bytes, at most 1048576"):
        echo.options(name="n" * 2_000_000).remote(1)
    for size in (1_025, 2_000_000):  # The GCS keeps those of actors.
        with pytest.raises(
            ValueError, match="a name is too large|a name or name space of more than 1024 bytes"
        ):
            Keeper.options(name="n" * size).remote()
    with pytest.raises(ValueError):
        sheaf.get_actor("n" * (FRAME + 1))


def test_resources_and_labels_of_a_call():
    with pytest.raises(
        ValueError, match="100001 resources, and labels.* at most 1048576; ask for fewer"
    ):
        echo.options(resources={f"resource_{i}": 1 for i in range(100_000)}).remote(1)
    with pytest.raises(ValueError, match="labels.* at most 1048576"):
        echo.options(label_selector={"zone": "in(" + ",".join(["z" * 60] * 20_000) + ")"}).remote(1)


def test_resources_of_a_node():
    program = (
        "import sheaf; sheaf.init(num_cpus=1, resources={f'resource_{i}': 1 for i in "
        "range(100_000)})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (
        "ValueError: resources: 100000 of them take" in done.stderr
        and "at most 100000" in done.stderr
    )


@pytest.mark.parametrize("size", [100, INLINE, 20 << 20])
def test_a_pair_of_the_key_value_store(size):
    assert _core.key_put("sizes", "key", bytes(size), True) in (True, False)
    assert len(_core.key_get("sizes", "key")) == size
    _core.key_delete("sizes", "key")


@pytest.mark.parametrize("size", [40 << 20, FRAME + 1])
def test_a_pair_that_is_too_large(size):
    with pytest.raises(ValueError, match="at most.*object store"):
        _core.key_put("sizes", "key", bytes(size), True)


def test_variables_of_an_environment():
    @sheaf.remote
    def read():
        return len(os.environ["SHEAF_TEST_LARGE"])

    def with_variable(size):
        return read.options(runtime_env={"env_vars": {"SHEAF_TEST_LARGE": "v" * size}}).remote()

    assert sheaf.get(with_variable(60_000), timeout=60) == 60_000
    for size in (64_000, 20 << 20):
        with pytest.raises(
            ValueError, match="the environment has .* bytes; at most 63488 are allowed"
        ):
            with_variable(size)


def test_bundles_of_a_placement_group():
    with pytest.raises(ValueError, match="a placement group of 100000 bundles is too large"):
        placement_group([{f"a_resource_with_a_long_name_that_nobody_has_{'x' * 60}": 1}] * 100_000)
    group = placement_group([{"CPU": 1}] * 1_000)
    assert not group.wait(0.2)
    remove_placement_group(group)


def test_a_listing_is_cut():
    signal = Keeper.remote()
    blocked = [
        echo.options(name=f"{i}" + "n" * 1_000_000, resources={"nowhere": 1}).remote(0)
        for i in range(50)
    ]
    with pytest.warns(UserWarning, match="this listing is not complete"):
        rows = state.list_tasks(limit=1_000_000)
    assert len(rows) < 50
    for ref in blocked:
        sheaf.cancel(ref)
    sheaf.kill(signal)


DETACHED = {
    "a value": (lambda: bytes(100), {}, [100]),
    "a large value": (lambda: bytes(5 << 20), {}, [5 << 20]),
    "a reference": (lambda: sheaf.put(bytes(200_000)), {}, [200_000]),
    "a result that is not there yet": (lambda: echo.remote(bytes(300)), {}, [300]),
}


@pytest.mark.parametrize("what", DETACHED)
def test_what_a_detached_actor_is_made_with(what):
    make, named, expected = DETACHED[what]
    actor = Keeper.options(name="detached", lifetime="detached", max_restarts=1).remote(
        make(), **named
    )
    try:
        assert sheaf.get(actor.sizes.remote(), timeout=30) == expected
        os.kill(sheaf.get(actor.pid.remote(), timeout=30), 9)
        assert _again(actor.sizes) == expected  # The GCS has kept them.
    finally:
        sheaf.kill(actor)


def test_references_inside_what_a_detached_actor_is_made_with():
    actor = Keeper.options(name="detached", lifetime="detached", max_restarts=1).remote(
        [sheaf.put("inner"), "plain"]
    )
    try:
        assert sheaf.get(actor.read.remote(), timeout=30) == ["inner", "plain"]
        os.kill(sheaf.get(actor.pid.remote(), timeout=30), 9)
        assert _again(actor.read) == ["inner", "plain"]
    finally:
        sheaf.kill(actor)


def test_more_than_a_detached_actor_is_made_with():
    with pytest.raises(
        ValueError,
        match="what the constructor of a detached actor takes is too large.*inside a list",
    ):
        Keeper.options(name="detached", lifetime="detached").remote(bytes(20 << 20))
    with pytest.raises(ValueError, match="Failed to look up actor|no actor|detached"):
        sheaf.get_actor("detached")


def _again(method):
    """The result of a call to an actor whose process was killed; it restarts meanwhile."""
    end = time.monotonic() + 30
    while True:
        try:
            return sheaf.get(method.remote(), timeout=30)
        except (sheaf.exceptions.RayActorError, sheaf.exceptions.ActorUnavailableError):
            assert time.monotonic() < end


def test_arrays_are_aligned():
    numpy = pytest.importorskip("numpy")
    for count in (1, 7, 64, 4_000, 100_000):
        for value in (
            sheaf.get(sheaf.put(numpy.arange(count))),
            sheaf.get(echo.remote(numpy.arange(count))),
        ):
            assert value.ctypes.data % 64 == 0 and (value == numpy.arange(count)).all()


def test_a_method_that_an_attribute_hides():
    @sheaf.remote
    class Hides:
        def __init__(self):
            self.items = {1, 2}
            self.fixed = 3

        def items(self):
            return sorted(self.items)

        @staticmethod
        def fixed(value):
            return value

        @classmethod
        def kind(cls, value):
            return cls.__name__, value

    actor = Hides.remote()
    assert sheaf.get(
        [actor.items.remote(), actor.fixed.remote(4), actor.kind.remote(5)], timeout=30
    ) == [[1, 2], 4, ("Hides", 5)]


def test_a_pickle_of_the_limit_words():
    """What a refused call raises can itself be sent."""

    @sheaf.remote(max_retries=0)
    def inner():
        return sizes_of.remote(*[0] * 500_001)

    with pytest.raises(ValueError, match="at most 500000") as raised:
        sheaf.get(inner.remote(), timeout=60)
    assert pickle.loads(pickle.dumps(raised.value)) is not None
