# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Remote functions: arguments, options, results, waiting."""

import asyncio
import os
import threading
import time

import numpy as np
import pytest
import sheaf
from conftest import WAIT_S

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote
def echo(*args, **kwargs):
    return args, kwargs


@sheaf.remote
def add(a, b=10, *, c=0):
    """Adds."""
    return a + b + c


def test_arguments_arrive_by_place_and_by_name():
    assert sheaf.get(echo.remote(1, "a", x=None, y=[2])) == ((1, "a"), {"x": None, "y": [2]})
    assert sheaf.get(
        [add.remote(1), add.remote(1, 2), add.remote(1, b=2, c=3), add.remote(a=1)]
    ) == [11, 3, 6, 11]


def test_references_among_arguments_stand_for_their_values():
    one = sheaf.put(1)
    assert sheaf.get(echo.remote(one, k=one)) == ((1,), {"k": 1})
    args, _ = sheaf.get(echo.remote([one]))
    assert sheaf.get(args[0][0]) == 1


def test_large_arguments_and_results_travel():
    array = np.arange(300_000)
    args, kwargs = sheaf.get(echo.remote(array, k=array))
    assert np.array_equal(args[0], array) and np.array_equal(kwargs["k"], array)


def test_the_function_runs_in_another_process():
    assert sheaf.get(sheaf.remote(os.getpid).remote()) != os.getpid()


def test_the_name_and_docstring_stay():
    assert add.__name__ == "add" and add.__doc__ == "Adds."


def test_wrong_arguments_fail_where_the_call_is_made():
    for call in (lambda: add.remote(), lambda: add.remote(1, 2, 3), lambda: add.remote(1, d=2)):
        with pytest.raises(TypeError, match="add"):
            call()


def test_a_direct_call_says_what_to_write():
    with pytest.raises(TypeError, match=r"add\.remote\(\)"):
        add(1)


def test_several_results():
    @sheaf.remote(num_returns=3)
    def three():
        return 1, 2, 3

    @sheaf.remote(num_returns=2)
    def one_of_two():
        return (1,)

    assert sheaf.get(three.remote()) == [1, 2, 3]
    assert sheaf.get(add.options(num_returns=1).remote(1)) == 11
    assert three.options(num_returns=0).remote() is None
    with pytest.raises(
        ValueError, match="Task returned 1 objects, but num_returns=2: return a tuple"
    ):
        sheaf.get(one_of_two.remote())


def test_a_generator_gives_several_results():
    @sheaf.remote(num_returns=2)
    def count_to(n):
        yield from range(n)
        if n == 5:
            raise KeyError("five")

    assert sheaf.get(count_to.remote(2)) == [0, 1]
    assert sheaf.get(count_to.remote(3)) == [0, 1]
    first, second = count_to.remote(1)
    assert sheaf.get(first) == 0
    with pytest.raises(
        ValueError, match="Task returned 1 objects, but num_returns=2: the generator must yield 2"
    ):
        sheaf.get(second)
    *first, last = count_to.options(num_returns=6).remote(5)
    assert sheaf.get(first) == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="five"):
        sheaf.get(last)


@sheaf.remote
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def test_short_tasks_do_not_wait_behind_a_long_one_while_a_worker_is_free(tmp_path):
    """Some are pushed to the worker that runs the long one, before anybody knows that it is long."""
    for i in range(8):
        path = tmp_path / str(i)
        long = wait_for.remote(path)
        sheaf.get([add.remote(k) for k in range(200)], timeout=WAIT_S)
        path.touch()
        sheaf.get(long, timeout=WAIT_S)


def test_a_function_may_call_itself():
    @sheaf.remote
    def fib(n):
        return n if n < 2 else sum(sheaf.get([fib.remote(n - 1), fib.remote(n - 2)]))

    assert sheaf.get(fib.remote(6)) == 8


def test_a_function_may_hold_references():
    hidden = sheaf.put(np.arange(10))

    @sheaf.remote
    def peek(extra):
        return int(sheaf.get(hidden)[3]) + extra

    assert sheaf.get(peek.remote(1)) == 4
    assert sheaf.get(peek.remote(extra=2)) == 5


def test_a_large_function_travels_through_the_key_value_store():
    blob = os.urandom(100_000)

    @sheaf.remote
    def size():
        return len(blob)

    assert sheaf.get([size.remote() for _ in range(4)]) == [100_000] * 4


def test_wait_gives_ready_and_others_in_order():
    @sheaf.remote(num_cpus=0)
    def after(seconds):
        time.sleep(seconds)
        return seconds

    slow, fast = after.remote(20), after.remote(0)
    ready, rest = sheaf.wait([slow, fast], timeout=WAIT_S)
    assert ready == [fast] and rest == [slow]
    assert sheaf.wait([slow], timeout=0) == ([], [slow])
    assert sheaf.wait([]) == ([], [])
    sheaf.cancel(slow)


@sheaf.remote(num_cpus=0)
def _first(value):
    return value


@pytest.mark.parametrize(
    "ready", [[], [0], [99], range(40, 60), range(0, 100, 2), range(100), [0, 1, 50, 98]], ids=str
)
def test_wait_leaves_all_others_in_their_order(ready):
    """However those that are ready lie in the list, which stays as it was."""

    @sheaf.remote(num_cpus=0, max_retries=0)
    def never():
        time.sleep(1000)

    pending = never.remote()
    refs = [sheaf.put(i) if i in ready else _first.remote(pending) for i in range(100)]
    given = list(refs)
    found, others = sheaf.wait(given, num_returns=max(1, len(ready)), timeout=0)
    assert found == [refs[i] for i in ready]
    assert others == [ref for i, ref in enumerate(refs) if i not in ready]
    assert given == refs
    sheaf.cancel(pending, force=True)


def test_an_object_that_comes_twice_is_found_behind_many():
    refs = [sheaf.put(i) for i in range(5000)]
    assert sheaf.wait(refs, num_returns=5000) == (refs, [])
    with pytest.raises(ValueError, match="comes twice"):
        sheaf.wait([*refs, refs[17]])
    assert sheaf.wait(refs[:3], num_returns=2) == (refs[:2], refs[2:3])


def test_wait_looks_at_the_list_that_it_was_given(tmp_path):
    """Another thread may change it while wait waits."""
    mark = str(tmp_path / "mark")

    @sheaf.remote(num_cpus=0)
    def until_marked():
        while not os.path.exists(mark):
            time.sleep(0.01)

    refs = [until_marked.remote() for _ in range(4)]
    given = list(refs)

    def shorten():
        del given[1:]
        open(mark, "w").close()

    timer = threading.Timer(0.1, shorten)
    timer.start()
    ready, others = sheaf.wait(given, num_returns=4, timeout=WAIT_S)
    timer.join()
    assert (ready, others) == (refs, [])


@pytest.mark.parametrize(
    "refs, kind",
    [("one", TypeError), (["x"], TypeError), ("twice", ValueError), ("many", ValueError)],
)
def test_wait_refuses_what_is_no_list_of_references(refs, kind):
    one = sheaf.put(1)
    given = (
        {"one": one, "twice": [one, one], "many": [one]}.get(refs, refs)
        if isinstance(refs, str)
        else refs
    )
    with pytest.raises(kind):
        sheaf.wait(given, num_returns=2 if refs == "many" else 1)


def test_get_takes_references_only():
    for wrong in ("text", 3):
        with pytest.raises(ValueError, match="get takes an ObjectRef"):
            sheaf.get(wrong)
    with pytest.raises(TypeError, match="get takes an ObjectRef or a list of them; item 1 is 2"):
        sheaf.get([sheaf.put(1), 2])
    with pytest.raises(ValueError, match="timeout=-1"):
        sheaf.get(sheaf.put(1), timeout=-1)
    with pytest.raises(TypeError, match="timeout='1': want a number of seconds"):
        sheaf.get(sheaf.put(1), timeout="1")


def test_a_reference_is_not_put_but_what_holds_it_is():
    ref = sheaf.put(1)
    with pytest.raises(TypeError, match=r"put \[ref\]"):
        sheaf.put(ref)
    assert sheaf.get(sheaf.get(sheaf.put([ref]))) == [1]


def test_get_with_a_timeout_says_what_it_waits_for():
    @sheaf.remote(num_cpus=0)
    def nap():
        time.sleep(20)

    ref = nap.remote()
    with pytest.raises(sheaf.exceptions.GetTimeoutError, match="nap"):
        sheaf.get(ref, timeout=0.05)
    with pytest.raises(TimeoutError):
        sheaf.get(ref, timeout=0)
    sheaf.cancel(ref)


def test_references_can_be_awaited_and_made_futures():
    async def both():
        return await asyncio.gather(add.remote(1), add.remote(2))

    assert asyncio.run(both()) == [11, 12]
    assert add.remote(3).future().result(WAIT_S) == 13
    with pytest.raises(TypeError):
        (add.remote("a")).future().result(WAIT_S)


def test_environment_variables_of_a_task():
    read = sheaf.remote(lambda: os.environ.get("MY_VALUE")).options(
        runtime_env={"env_vars": {"MY_VALUE": "yes"}}
    )
    assert sheaf.get(read.remote(), timeout=WAIT_S) == "yes"
    assert sheaf.get(sheaf.remote(lambda: os.environ.get("MY_VALUE")).remote()) is None


def test_ten_thousand_calls_in_flight():
    assert sheaf.get([add.remote(i, 1) for i in range(10_000)]) == list(range(1, 10_001))


def test_hundreds_of_arguments():
    assert len(sheaf.get(echo.remote(*range(3000)))[0]) == 3000
    assert len(sheaf.get(echo.remote(**{f"k{i}": i for i in range(500)}))[1]) == 500
    assert len(sheaf.get(echo.remote(**{f"k{i}": i for i in range(1500)}))[1]) == 1500


def test_a_flood_of_calls_with_arguments():
    text = "x" * 1000
    refs = [echo.remote(text) for _ in range(40_000)]
    assert sheaf.get(refs[-1]) == ((text,), {}) and len(sheaf.get(refs)) == 40_000


def test_a_worker_ends_after_max_calls_however_far_apart_they_are():
    @sheaf.remote(max_calls=2)
    def pid():
        return os.getpid()

    pids = []
    for _ in range(6):
        pids.append(sheaf.get(pid.remote(), timeout=WAIT_S))
        time.sleep(0.15)  # The lease goes back meanwhile.
    assert all(pids.count(one) <= 2 for one in pids)
