# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How datasets run: actors, errors, memory, consumers that leave, epochs that are shared."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
import types
from concurrent import futures

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sheaf
from conftest import wait_until
from sheaf import data
from sheaf.data import expressions
from sheaf.data.shell import Execution
from sheaf.data.streaming.consumer import ConsumerLost


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=256 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


def nothing_runs():
    """Whether all CPUs are free again."""
    return sheaf.available_resources().get("CPU") == 2


class Scale:
    """Multiplies, and says in which process."""

    def __init__(self, by):
        self.by = by

    def __call__(self, batch):
        return {"id": batch["id"] * self.by, "pid": np.full(len(batch["id"]), os.getpid())}


@pytest.mark.parametrize("concurrency", [1, 2, (1, 2)])
def test_a_class_runs_in_actors(concurrency):
    """Also as many as there are CPUs: the reading tasks have theirs first."""
    scaled = data.range(1000, override_num_blocks=10).map_batches(
        Scale, fn_constructor_args=(3,), concurrency=concurrency, batch_size=50
    )
    rows = scaled.take_all()
    assert [row["id"] for row in rows] == [3 * i for i in range(1000)]
    assert 1 <= len({row["pid"] for row in rows}) <= 2
    wait_until(nothing_runs, "an actor is left")


def test_an_actor_that_dies_is_replaced(tmp_path):
    mark = tmp_path / "died"

    class Dies:
        def __call__(self, batch):
            if not mark.exists() and 500 in batch["id"]:
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return batch

    dataset = data.range(1000, override_num_blocks=10).map_batches(Dies, concurrency=1)
    assert [row["id"] for row in dataset.take_all()] == list(range(1000))
    assert mark.exists()


def test_a_task_whose_worker_dies_runs_again(tmp_path):
    mark = tmp_path / "died"

    def dies(batch):
        if not mark.exists() and 500 in batch["id"]:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    dataset = data.range(1000, override_num_blocks=10).map_batches(dies)
    assert dataset.sum("id") == 499500


def test_a_constructor_that_fails_is_an_error():
    class Never:
        def __init__(self):
            raise ValueError("no model")

        def __call__(self, batch):
            return batch

    with pytest.raises(
        Exception, match=r"MapBatches\(Never\): 3 actors in a row did not start(.|\n)*no model"
    ):
        data.range(10).map_batches(Never, concurrency=1).take_all()
    wait_until(nothing_runs, "an actor is left")


def test_the_users_exception_comes_with_operator_and_row():
    def bad(batch):
        if 777 in batch["id"]:
            raise KeyError("seven")
        return batch

    with pytest.raises(
        Exception, match=r"MapBatches\(bad\): KeyError: 'seven'; one row of it: \{'id': 700\}"
    ):
        data.range(5000).map_batches(bad, batch_size=100).count()
    wait_until(nothing_runs, "a task is left")
    assert data.range(10).map(lambda r: r).count() == 10


def test_blocks_that_fail_are_left_out_when_they_may():
    def bad(row):
        if row["id"] == 5:
            raise ValueError("five")
        return row

    dataset = data.range(10, override_num_blocks=10).map(bad)
    dataset.context.max_errored_blocks = 1
    assert len(dataset.take_all()) == 9
    dataset.context.max_errored_blocks = 0
    with pytest.raises(Exception, match="five"):
        dataset.take_all()


def test_a_task_that_fails_while_it_stores_a_block_has_failed():
    """The error lies where the block would, and is not handed on as one."""

    def fails(batch):
        def watch(frame, event, given):
            if (
                event == "return"
                and frame.f_code.co_name == "run_task"
                and hasattr(given, "schema")
            ):
                sys.setprofile(None)
                raise MemoryError("no room for it")

        if 3 in batch["id"]:
            sys.setprofile(watch)
        return {"id": np.repeat(batch["id"], 10_000)}

    with pytest.raises(MemoryError, match="no room for it"):
        data.range(8, override_num_blocks=4).map_batches(fails).materialize()
    context = data.DataContext.get_current()
    context.max_errored_blocks = 1
    try:
        kept = data.range(8, override_num_blocks=4).map_batches(fails).materialize()
        assert kept.count() == 60_000
    finally:
        context.max_errored_blocks = 0


def test_memory_stays_within_the_budget():
    """400 MB go through 40 MB; the consumer is slow."""
    dataset = data.range(50, override_num_blocks=50).map_batches(
        lambda b: {"x": np.zeros((len(b["id"]), 1 << 20))}
    )
    limits = data.ExecutionResources.for_limits(object_store_memory=40e6)
    dataset.context.execution_options = data.ExecutionOptions(resource_limits=limits)
    rows = 0
    for batch in dataset.iter_batches(batch_size=None, prefetch_batches=0):
        rows += len(batch["x"])
        time.sleep(0.005)
    assert rows == 50
    assert dataset._stats.peak_bytes <= 40e6 + 3 * 8.5e6


def test_a_consumer_that_leaves_ends_all():
    def slow(batch):
        time.sleep(0.1)
        return batch

    began = time.monotonic()
    for _ in (
        data.range(1000, override_num_blocks=1000).map_batches(slow).iter_batches(batch_size=None)
    ):
        break
    wait_until(nothing_runs, "a task is left", seconds=15)
    assert time.monotonic() - began < 20  # All blocks take 50 s.


def test_ctrl_c_ends_all(tmp_path):
    """Within half a second, with nothing left running."""
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, pathlib, time
import sheaf
from sheaf import data

def slow(batch):
    pathlib.Path({str(tmp_path)!r}, f"{{os.getpid()}}.pid").touch()
    time.sleep(60)
    return batch

sheaf.init(num_cpus=2, log_to_driver=False)
try:
    data.range(100).map_batches(slow).take_all()
except KeyboardInterrupt:
    began = time.monotonic()
    while sheaf.available_resources().get("CPU") != 2 and time.monotonic() - began < 5:
        time.sleep(0.01)
    print("ended after", time.monotonic() - began, flush=True)
""")
    child = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True)
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == 2, "the tasks do not start")
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=30)
    assert said.startswith("ended after") and float(said.split()[-1]) < 2


def test_a_split_is_shared_by_consumers_in_other_processes():
    parts = data.range(1001).map_batches(lambda b: b).streaming_split(2, equal=True)

    @sheaf.remote(num_cpus=0)
    def consume(iterator):
        return [
            [int(i) for b in iterator.iter_batches(batch_size=100) for i in b["id"]]
            for _ in range(2)
        ]

    one, other = sheaf.get([consume.remote(part) for part in parts])
    for first, second in zip(one, other):  # Two epochs.
        assert len(first) == len(second) == 500
        assert len({*first, *second}) == 1000


def test_a_split_in_unequal_parts_gives_each_row_once():
    parts = data.range(1001).streaming_split(3)

    @sheaf.remote(num_cpus=0)
    def consume(iterator):
        return [row["id"] for row in iterator.iter_rows()]

    found = sheaf.get([consume.remote(part) for part in parts])
    assert sorted(i for part in found for i in part) == list(range(1001))


def impatient(dataset):
    dataset.context.split_silence_s = 0.3
    return dataset


def test_a_consumer_that_does_not_come_is_named():
    one, _ = impatient(data.range(10)).streaming_split(2, equal=True)
    with pytest.raises(ConsumerLost, match=r"consumers \[1\] of 2 did not begin epoch 0"):
        list(one.iter_rows())


@pytest.mark.parametrize("equal", [False, True])
def test_who_comes_again_gets_the_epoch_that_the_other_was_late_for(equal):
    one, other = impatient(data.range(10)).streaming_split(2, equal=equal)
    with pytest.raises(ConsumerLost):
        list(one.iter_rows())
    with futures.ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda part: [r["id"] for r in part.iter_rows()], (one, other)))
    assert sorted(i for part in found for i in part) == list(range(10))


def test_a_group_that_is_formed_anew_gets_one_epoch_together():
    parts = data.range(1000, override_num_blocks=20).streaming_split(2)

    @sheaf.remote(num_cpus=0)
    class Consumer:
        def consume(self, part, epochs, rows=None):
            return [len(list(itertools.islice(part.iter_rows(), rows))) for _ in range(epochs)]

        def hang(self, part):
            for _ in part.iter_rows():
                time.sleep(600)

    old = [Consumer.remote(), Consumer.remote()]
    ahead = old[0].consume.remote(parts[0], 2)  # Waits for the second epoch in the end.
    old[1].hang.remote(parts[1])
    assert not sheaf.wait([ahead], timeout=2)[0]
    for consumer in old:
        sheaf.kill(consumer)
    new = [Consumer.remote(), Consumer.remote()]
    found = sheaf.get([one.consume.remote(part, 1) for one, part in zip(new, parts, strict=True)])
    assert sum(rows for (rows,) in found) == 1000


def test_random_numbers_with_a_seed_do_not_depend_on_time():
    def hurry(batch):
        time.sleep(random.random() * 0.01)
        return batch

    rows = data.range(60, override_num_blocks=60).map_batches(hurry, concurrency=1)
    numbered = rows.with_column("r", expressions.random(seed=1))
    assert numbered.take_all() == numbered.take_all()


def test_batches_of_an_iterator():
    dataset = data.range(100, override_num_blocks=7).map_batches(lambda b: b)
    assert [len(b["id"]) for b in dataset.iter_batches(batch_size=30)] == [30, 30, 30, 10]
    assert [len(b["id"]) for b in dataset.iter_batches(batch_size=30, drop_last=True)] == [30] * 3
    mixed = [
        int(i)
        for b in dataset.iter_batches(
            batch_size=10, local_shuffle_buffer_size=50, local_shuffle_seed=1
        )
        for i in b["id"]
    ]
    assert mixed != list(range(100)) and sorted(mixed) == list(range(100))
    again = dataset.iter_rows()
    assert len(list(again)) == len(list(again)) == 100
    with pytest.raises(ValueError, match="batch_size=0"):
        dataset.iter_batches(batch_size=0)


def test_an_error_comes_out_of_an_iterator():
    def bad(batch):
        raise ValueError("bad batch")

    with pytest.raises(Exception, match="bad batch"):
        list(data.range(10).map_batches(bad).iter_batches())
    wait_until(nothing_runs, "a task is left")


def test_workers_of_a_trainer_share_a_dataset(tmp_path):
    """Two epochs of equal parts, of which each row goes to one worker."""
    from sheaf import train

    def loop(config):
        shard = train.get_dataset_shard("train")
        seen = []
        for _ in range(2):
            seen.append(sorted(int(i) for b in shard.iter_batches(batch_size=64) for i in b["id"]))
        (tmp_path / f"{train.get_context().get_world_rank()}").write_text(repr(seen))
        train.report({"rows": len(seen[0])})

    dataset = data.range(1000).map_batches(lambda b: b)
    trainer = train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        datasets={"train": dataset},
        run_config=train.RunConfig(storage_path=str(tmp_path / "runs")),
    )
    assert trainer.fit().metrics["rows"] == 500
    one, other = (eval((tmp_path / name).read_text()) for name in "01")
    for first, second in zip(one, other):
        assert len(first) == len(second) == 500 and len({*first, *second}) == 1000


def test_what_a_limit_has_cancelled_is_not_looked_at():
    """The end of one task may let the limit have enough, and cancel another that has just ended."""
    gone, looked = set(), []
    execution = Execution.__new__(Execution)
    execution._actors, execution._running = {}, {1: None, 2: None}
    execution._drawn = set()
    execution._machine = types.SimpleNamespace(runs=lambda number: number not in gone)

    def look_at(number):
        looked.append(number)
        gone.add(2)
        return True

    execution._look_at = look_at
    assert execution._poll() and looked == [1]


def _megabytes(batch):
    return {"x": np.repeat(batch["id"], (1 << 20) // 8).reshape(len(batch["id"]), -1)}


def test_blocks_are_smaller_where_the_store_is_small():
    """What a read task of few bytes becomes is not joined until it fills a small store."""
    rows = 1000
    made = data.range(rows, override_num_blocks=60).map_batches(_megabytes, batch_size=4)
    mapped = made.map_batches(lambda batch: {"x": -batch["x"]})
    sizes = [len(batch["x"]) for batch in mapped.iter_batches(batch_size=None)]
    assert sum(sizes) == rows
    assert max(sizes) <= 16  # MiB, of 256 for two CPUs.


@pytest.mark.parametrize("step", ["read", "map", "sort"])
def test_blocks_are_as_small_as_the_budget_asks_for(step, tmp_path):
    """Files tell little of text that repeats; two tasks that each read and make 100 MiB of it would
    not fit into a small store."""
    pq.write_table(pa.table({"id": range(20_000), "pad": ["p" * 400] * 20_000}), tmp_path / "one")
    context = data.DataContext.get_current().copy()
    limits = data.ExecutionResources(object_store_memory=8 << 20)
    context.execution_options.resource_limits = limits
    with data.DataContext.current(context):
        rows = data.read_parquet(str(tmp_path), file_extensions=None)
        made = {
            "read": rows,
            "map": rows.map_batches(lambda b: b, batch_size=None),
            "sort": rows.sort("id"),
        }[step].materialize()
    sizes = [bundle.size_bytes for bundle in made._plan.bundles]
    assert sum(sizes) > 8_000_000 and max(sizes) <= 2 << 20
    context.target_max_block_size = None  # As large as they come.
    with data.DataContext.current(context):
        whole = data.range(1000, override_num_blocks=1).map_batches(lambda b: b).materialize()
    assert whole.num_blocks() == 1 and whole.sort("id", descending=True).take(1) == [{"id": 999}]
