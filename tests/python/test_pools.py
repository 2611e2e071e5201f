# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""multiprocessing.Pool, joblib's backend, and the scheduler for Dask graphs."""

import os
import time

import pytest
from conftest import WAIT_S
from sheaf.util.multiprocessing import Pool, TimeoutError

pytestmark = pytest.mark.usefixtures("node")


def square(x):
    return x * x


def add(x, y=0):
    return x + y


def fail_at_three(x):
    if x == 3:
        raise KeyError(x)
    return x


def pid_of(_):
    return os.getpid()


def pause(seconds):
    time.sleep(seconds)
    return seconds


@pytest.fixture(scope="module")
def pool(node):
    with Pool(2) as pool:
        yield pool


def test_the_maps_keep_order(pool):
    assert pool.map(square, range(100)) == [x * x for x in range(100)]
    assert pool.map(square, []) == []
    assert pool.map(square, range(10), chunksize=3) == [x * x for x in range(10)]
    assert pool.starmap(add, [(1, 2), (3, 4)]) == [3, 7]
    assert list(pool.imap(square, range(50))) == [x * x for x in range(50)]
    assert sorted(pool.imap_unordered(square, range(50), chunksize=7)) == [x * x for x in range(50)]


def test_apply_takes_keywords():
    with Pool(1) as one:
        assert one.apply(add, (1,), {"y": 5}) == 6


def test_both_processes_work(pool):
    assert len(set(pool.map(pid_of, range(8), chunksize=1))) == 2


def test_errors_come_from_get_and_the_others_run_on(pool):
    with pytest.raises(KeyError):
        pool.map(fail_at_three, range(5))
    items = pool.imap(fail_at_three, range(5))
    assert [next(items), next(items), next(items)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(items)
    assert next(items) == 4


def test_callbacks_and_results_that_are_late(pool):
    got, failed = [], []
    result = pool.map_async(square, [1, 2], callback=got.append)
    result.wait(WAIT_S)
    bad = pool.apply_async(fail_at_three, (3,), error_callback=failed.append)
    bad.wait(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while not (got and failed) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert got == [[1, 4]] and isinstance(failed[0], KeyError)
    assert result.successful() and not bad.successful()
    late = pool.apply_async(pause, (0.3,))
    assert not late.ready()
    with pytest.raises(ValueError):
        late.successful()
    with pytest.raises(TimeoutError):
        late.get(timeout=0.01)
    assert late.get(WAIT_S) == 0.3


def set_variable(value):
    os.environ["SHEAF_TEST_POOL"] = value


def read_variable(_):
    return os.environ["SHEAF_TEST_POOL"]


def test_the_initializer_runs_in_each_process():
    with Pool(2, set_variable, ("there",)) as pool:
        assert pool.map(read_variable, range(4), chunksize=1) == ["there"] * 4


def test_processes_are_replaced_after_their_tasks():
    with Pool(1, maxtasksperchild=2) as pool:
        assert len(set(pool.map(pid_of, range(6), chunksize=1))) == 3


def test_a_closed_pool_ends_its_calls_and_takes_no_more():
    pool = Pool(1)
    result = pool.apply_async(pause, (0.05,))
    with pytest.raises(ValueError):
        pool.join()
    pool.close()
    with pytest.raises(ValueError):
        pool.apply(square, (1,))
    pool.join()
    assert result.get(WAIT_S) == 0.05


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="processes=0"):
        Pool(0)


def test_joblib_runs_on_the_cluster():
    joblib = pytest.importorskip("joblib")
    from sheaf.util.joblib import register_ray

    register_ray()
    with joblib.parallel_backend("ray", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(square)(i) for i in range(20)) == [
            i * i for i in range(20)
        ]
        pids = joblib.Parallel(batch_size=1)(joblib.delayed(pid_of)(i) for i in range(8))
    assert os.getpid() not in pids


def test_dask_graphs_run_as_tasks():
    dask = pytest.importorskip("dask")
    from sheaf.util.dask import disable_dask_on_ray, enable_dask_on_ray, ray_dask_get

    graph = {"a": 1, "b": (add, "a", 10), "c": (sum, ["a", "b", (square, "b")]), "d": "c"}
    assert ray_dask_get(graph, ["c", ["a", "d"]]) == [133, [1, 133]]
    total = sum(dask.delayed(square)(i) for i in range(5))
    assert total.compute(scheduler=ray_dask_get) == 30
    with enable_dask_on_ray():
        assert dask.delayed(pid_of)(0).compute() != os.getpid()
    disable_dask_on_ray()
    with pytest.raises(KeyError):
        dask.delayed(fail_at_three)(3).compute(scheduler=ray_dask_get)


def test_a_pool_works_while_actors_hold_all_cpus(node):
    @node.remote(num_cpus=1)
    class Holder:
        def ready(self):
            return True

    holders = [Holder.remote() for _ in range(int(node.cluster_resources()["CPU"]))]
    assert all(node.get([holder.ready.remote() for holder in holders]))
    with Pool(1) as pool:
        assert pool.map_async(square, [3]).get(WAIT_S) == [9]
    with pytest.raises(ValueError, match="Tried to start a pool with 1000 processes"):
        Pool(1000)
