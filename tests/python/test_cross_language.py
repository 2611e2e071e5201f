# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Python calls C++ by name, in a library and in a program; a program in C++ calls Python by name.
cross_language.cc has the C++."""

import os
import pathlib
import re
import subprocess
import sys

import numpy
import pytest
import sheaf
from conftest import WAIT_S
from sheaf import _core, cross_language
from sheaf.exceptions import ActorDiedError, CrossLanguageError, RayError, WorkerCrashedError

BUILT = pathlib.Path(_core.__file__).resolve().parents[2] / "tests" / "python"
LIBRARY = BUILT / "libcross_language.so"
PROGRAM = BUILT / "cross_language_program"


@pytest.fixture(scope="module", autouse=True)
def library(node):
    cross_language.load(LIBRARY)
    yield
    cross_language._library = ""


def call(name, *args):
    return sheaf.get(cross_language.cpp_function("app::" + name).remote(*args), timeout=WAIT_S)


class TestValues:
    def test_numbers_and_text(self):
        assert call("Square", 7) == 49
        values = call("Echo", True, 2**64 - 1, 0.25, "grüß", b"\x00\xff")
        assert values[:4] == [True, 2**64 - 1, 0.25, "grüß"]
        assert values[4].tobytes() == b"\x00\xff"
        assert call("Nothing", None) is None

    def test_numpy_scalars_are_plain_numbers(self):
        values = call(
            "Echo",
            numpy.bool_(False),
            numpy.uint8(200),
            numpy.float32(0.5),
            "",
            numpy.array([1, 2], "u1"),
        )
        assert values[:4] == [False, 200, 0.5, ""]
        assert list(values[4]) == [1, 2]

    def test_lists_and_dicts(self):
        counts = call("Counts", ["a", "b", "a"])
        assert {word: list(places) for word, places in counts.items()} == {"a": [0, 2], "b": [1]}

    @pytest.mark.parametrize("count", [0, 3, 100_000])
    def test_arrays(self, count):
        assert call("Sum", numpy.full(count, 0.5)) == count / 2
        ramp = call("Ramp", count)
        assert ramp.dtype == numpy.float32 and ramp.shape == (count,)
        assert (ramp == numpy.arange(count)).all()

    def test_a_list_of_numbers_is_read_as_an_array(self):
        assert call("Sum", [1, 2.5]) == 3.5

    def test_references(self):
        four = cross_language.cpp_function("app::Square").remote(2)
        assert call("Square", four) == 16
        assert call("Square", sheaf.put(5)) == 25

    def test_a_result_goes_to_a_function_of_python(self):
        @sheaf.remote
        def increase(x):
            return x + 1

        assert (
            sheaf.get(
                increase.remote(cross_language.cpp_function("app::Square").remote(3)),
                timeout=WAIT_S,
            )
            == 10
        )

    def test_a_generator(self):
        up_to = cross_language.cpp_function("app::UpTo").options(num_returns="streaming")
        assert [sheaf.get(ref, timeout=WAIT_S) for ref in up_to.remote(3)] == [0, 1, 2]


class TestCalls:
    def test_by_the_number_of_arguments(self):
        assert call("Overloaded", 4) == 4
        assert call("Overloaded", 4, 5) == 9

    def test_within_a_task(self):
        @sheaf.remote
        def square_in_cpp(function, x):
            return sheaf.get(function.remote(x))

        function = cross_language.cpp_function("app::Square")
        assert sheaf.get(square_in_cpp.remote(function, 6), timeout=WAIT_S) == 36

    def test_that_cpp_passes_on(self):
        assert call("SquareElsewhere", 8) == 64

    def test_that_cpp_makes_to_python(self):
        assert call("UpperInPython", "x") == "X"

    def test_with_options(self):
        function = cross_language.cpp_function("app::Pid").options(
            num_cpus=2, name="pid", max_retries=0
        )
        assert sheaf.get(function.remote(), timeout=WAIT_S) != os.getpid()

    def test_of_a_program(self):
        cross_language.load(PROGRAM)
        try:
            assert call("Twice", "ab") == "abab"
        finally:
            cross_language.load(LIBRARY)


class TestActors:
    def test_by_constructor_and_by_factory(self):
        counter = cross_language.cpp_actor_class("app::Counter").remote(10)
        counter.Add.remote(5)
        assert sheaf.get(counter.Value.remote(), timeout=WAIT_S) == 15
        between = cross_language.cpp_actor_class(
            "RAY_FUNC(app::Counter::Between)", "app::Counter"
        ).remote(2, 6)
        assert sheaf.get(between.Value.remote(), timeout=WAIT_S) == 4

    def test_handles_travel(self):
        @sheaf.remote
        def add_to(counter, n):
            return sheaf.get(counter.Add.remote(n))

        counter = cross_language.cpp_actor_class("app::Counter").remote(0)
        assert sheaf.get(add_to.remote(counter, 3), timeout=WAIT_S) == 3

    def test_by_name(self):
        made = cross_language.cpp_actor_class("app::Counter").options(name="counter").remote(1)
        found = sheaf.get_actor("counter")
        assert found == made
        assert sheaf.get(found.Add.remote(1), timeout=WAIT_S) == 2

    def test_killed(self):
        counter = cross_language.cpp_actor_class("app::Counter").remote(0)
        sheaf.get(counter.Value.remote(), timeout=WAIT_S)
        sheaf.kill(counter)
        with pytest.raises(ActorDiedError):
            sheaf.get(counter.Value.remote(), timeout=WAIT_S)

    def test_whose_constructor_throws(self):
        counter = cross_language.cpp_actor_class("app::Counter").remote(-1)
        with pytest.raises(ActorDiedError, match="a counter starts at 0 or more"):
            sheaf.get(counter.Value.remote(), timeout=WAIT_S)

    def test_without_such_a_method(self):
        counter = cross_language.cpp_actor_class("app::Counter").remote(0)
        with pytest.raises(CrossLanguageError, match="app::Counter::Subtract"):
            sheaf.get(counter.Subtract.remote(1), timeout=WAIT_S)


class TestErrors:
    def test_an_exception_keeps_its_type_and_text(self):
        with pytest.raises(CrossLanguageError) as caught:
            call("At", [1, 2], 5)
        error = caught.value
        assert (error.language, error.function_name, error.cause_type) == (
            "c++",
            "app::At",
            "std::out_of_range",
        )
        assert "5" in error.cause_message and isinstance(error, RayError)

    def test_no_such_function(self):
        with pytest.raises(CrossLanguageError, match="has no 'app::Cube' in any SHEAF_REMOTE"):
            call("Cube", 3)

    def test_another_number_of_arguments(self):
        with pytest.raises(
            CrossLanguageError, match="'app::Square' is called with 2 arguments, it has 1"
        ):
            call("Square", 3, 4)

    def test_keywords(self):
        with pytest.raises(TypeError, match="by position, got x"):
            cross_language.cpp_function("app::Square").remote(x=3)

    @pytest.mark.parametrize(
        ("argument", "words"),
        [
            ("seven", r"argument 1 \(int\): .*want an integer"),
            (2**40, r"argument 1 \(int\): .*out of range"),
        ],
    )
    def test_a_value_of_another_type(self, argument, words):
        with pytest.raises(CrossLanguageError, match=words) as caught:
            call("Square", argument)
        assert caught.value.cause_type == "sheaf::SerializationError"

    @pytest.mark.parametrize(
        ("argument", "words"),
        [
            ({1, 2}, "argument 1 is a set: calls between languages take None, bool"),
            ([1, {"a": [object()]}], r"argument 1\[1\]\['a'\]\[0\] is a object: calls"),
            ({(1, 2): {3}}, r"argument 1\[\(1, 2\)\] is a set"),
            (2**70, "argument 1 is a int: it has more than 64 bits"),
            (numpy.zeros((2, 2)), r"argument 1 is a ndarray: it has 2 dimensions"),
            (numpy.zeros(10)[::2], r"argument 1 is a ndarray: its items are not side by side"),
            (
                numpy.zeros(2, complex),
                r"argument 1 is a ndarray: its items \('Zd'\) are no integers",
            ),
        ],
    )
    def test_a_value_that_does_not_travel(self, argument, words):
        with pytest.raises(TypeError, match=words):
            cross_language.cpp_function("app::Square").remote(argument)

    def test_a_list_in_itself(self):
        endless = []
        endless.append(endless)
        with pytest.raises(TypeError, match="more than 200 deep"):
            cross_language.cpp_function("app::Square").remote(endless)

    def test_an_object_that_only_python_reads(self):
        with pytest.raises(CrossLanguageError, match="it is a pickle, which only Python reads"):
            call("Square", sheaf.put({1, 2}))

    def test_a_crash(self):
        with pytest.raises(WorkerCrashedError, match="signal 6"):
            sheaf.get(
                cross_language.cpp_function("app::Crash").options(max_retries=0).remote(),
                timeout=WAIT_S,
            )

    def test_a_library_that_is_none(self, tmp_path):
        with pytest.raises(ValueError, match="there is no such file"):
            cross_language.load(tmp_path / "absent.so")
        empty = tmp_path / "empty.so"
        empty.write_bytes(b"")
        cross_language.load(empty)
        try:
            with pytest.raises(RayError, match=r"empty.so is no library of Sheaf"):
                call("Square", 1)
        finally:
            cross_language.load(LIBRARY)


class TestTheFormat:
    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            0,
            -1,
            127,
            -33,
            2**63 - 1,
            -(2**63),
            2**64 - 1,
            1.5,
            "",
            "x" * 40,
            "ü" * 300,
            b"",
            b"y" * 70_000,
            [],
            [[1], {}],
            {"a": {1: b"b"}},
        ],
    )
    def test_values_come_back(self, value):
        assert _core.decode_plain(_core.encode_plain(value)) == value

    def test_tuples_become_lists(self):
        assert _core.decode_plain(_core.encode_plain((1, (2, 3)))) == [1, [2, 3]]

    @pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])
    @pytest.mark.parametrize("count", [0, 1, 2, 15, 32, 1000])
    def test_arrays_come_back(self, kind, count):
        array = numpy.arange(count).astype(kind)
        back = _core.decode_plain(_core.encode_plain([array, "between", array]))
        assert back[1] == "between"
        for one in back[0], back[2]:
            assert one.dtype == array.dtype and (one == array).all()

    def test_bytes_that_are_cut_off_are_refused(self):
        whole = _core.encode_plain([numpy.arange(100.0), {"a": "b" * 40}])
        for size in range(1, len(whole)):  # No bytes are None.
            with pytest.raises(ValueError):
                _core.decode_plain(whole[:size])


@pytest.fixture(scope="module")
def lines():
    """What the program in C++ printed, by what it tried."""
    here = str(pathlib.Path(__file__).parent)
    environment = {
        **os.environ,
        "TEST_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([here, *sys.path]),
    }
    done = subprocess.run([PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(line.split(" = ", 1) for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("int", "5"),
        ("double", "1.500000"),
        ("text", "GRÜSS"),
        ("bytes", "3 2 1 "),
        ("array", "5000.000000"),
        ("array back", "1000 998001"),
        ("dict", "21"),
        ("none", "nothing"),
        ("reference", "15"),
        ("to C++ and back", "25"),
        ("stream", "012"),
        ("C++ from Python", "49"),
        ("Python from Python", "7"),
        ("exception", "TaskError refuse KeyError: 'no such key'"),
        ("no module", "TaskError f ModuleNotFoundError: No module named 'no_such_module'"),
        ("no function", "TaskError absent AttributeError: .*absent.*"),
        (
            "too many arguments",
            r"TaskError add TypeError: add\(\) takes 2 positional arguments but 3 were given",
        ),
        (
            "result that does not travel",
            r"TaskError a_set TypeError: the result of a_set\[1\] is a set: calls "
            r"between languages take .*",
        ),
        ("result of another type", "Error 21: .*want an integer"),
        ("exit", "Error 3: .*status 3.*"),
        ("the lines of docs/cross_language.md", "3.000000 5"),
        ("actor", "16"),
        ("actor by name", "2"),
        ("actor of C++ by name", "Error 21: actor 'cpp' is one of C.*"),
        ("actor that raises", "TaskError fail ValueError: as it was told"),
        ("no method", "TaskError absent AttributeError: .*absent.*"),
        ("actor that cannot be made", "Error 4: .*TypeError.*"),
        ("killed actor", "Error 4: .*"),
    ],
)
def test_cpp_calls_python(lines, what, words):
    assert re.fullmatch(words, lines[what]), lines[what]


def test_all_that_the_program_tried_is_looked_at(lines):
    assert len(lines) == 28
