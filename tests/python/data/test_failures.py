# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is killed, left or starved on the way: the rows are those of a run that nothing disturbed,
and nothing is left behind. `./do soak data_kills` has the same with many seeds, and nodes."""

import gc
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import urllib.request

import data_kills
import numpy as np
import pytest
import sheaf
from conftest import is_running, wait_until
from sheaf import data, train
from sheaf.data import aggregate
from sheaf.exceptions import ObjectStoreFullError, RayActorError
from sheaf.util import state

STORE = 256 << 20
OTHERS = [stage for stage in data_kills.STAGES if stage != "small"]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=STORE, log_to_driver=False)
    yield
    sheaf.shutdown()


def nothing_runs():
    """Whether no task runs and no actor is there."""
    return sheaf.available_resources().get("CPU") == 2 and not any(
        row["running"] for row in state.list_workers()
    )


def used_bytes():
    """Of the object store."""
    url = f"http://127.0.0.1:{sheaf.nodes()[0]['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(s.split()[-1]) for s in lines if s.startswith("sheaf_store_used_bytes"))


# The one that found the most, another, and kills at any time; the soak row has all.
@pytest.mark.parametrize("stage", ["small", random.choice(OTHERS), "any"])
def test_workers_that_are_killed_change_nothing(stage, tmp_path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    if stage == "any":
        data_kills.at_any_time(stage, seed, tmp_path)
    else:
        data_kills.in_stage(stage, seed, tmp_path)


def wide(batch):
    """4 MB for each row."""
    return {"x": np.zeros((len(batch["id"]), 1 << 19)) + batch["id"][:, None]}


class Wide:
    def __call__(self, batch):
        return wide(batch)


def limited(function, **options):
    """80 MB, of which 20 MB may be there at once."""
    dataset = data.range(20, override_num_blocks=20).map_batches(function, **options)
    limits = data.ExecutionResources.for_limits(object_store_memory=20e6)
    dataset.context.execution_options = data.ExecutionOptions(resource_limits=limits)
    return dataset


@pytest.mark.parametrize(
    ("one", "options"), [(wide, {}), (Wide, {"concurrency": 2})], ids=["tasks", "actors"]
)
def test_datasets_that_wait_for_their_consumer_starve_no_other(one, options):
    """Its tasks and actors have all CPUs, and do nothing."""
    first = iter(limited(one, **options).iter_batches(batch_size=None, prefetch_batches=0))
    rows = len(next(first)["x"])
    wait_until(
        lambda: sheaf.available_resources().get("CPU") == 2, "what waits does not lend its CPUs"
    )
    for other, given in ((wide, {}), (Wide, {"concurrency": 1})):
        batches = limited(other, **given).iter_batches(batch_size=None)
        assert sum(len(batch["x"]) for batch in batches) == 20
    assert rows + sum(len(batch["x"]) for batch in first) == 20


def test_actors_that_were_idle_keep_what_they_have_made():
    class Counts:
        def __init__(self):
            self.calls = 0

        def __call__(self, batch):
            self.calls += 1
            return {**wide(batch), "calls": np.array([self.calls]), "pid": np.array([os.getpid()])}

    seen = {}
    batches = limited(Counts, concurrency=1).iter_batches(batch_size=None, prefetch_batches=0)
    for number, batch in enumerate(batches):
        if number in (1, 4):  # It waits meanwhile, and lends its CPU.
            wait_until(lambda: sheaf.available_resources().get("CPU") == 2, "it does not lend")
        seen.setdefault(int(batch["pid"][0]), []).append(int(batch["calls"][0]))
    assert list(seen.values()) == [list(range(1, 21))]


def test_functions_of_users_do_not_run_in_the_driver():
    """However little data there is: what they do to their process is not done to this one."""

    def pid(batch):
        return {"pid": [os.getpid()] * len(next(iter(batch.values())))}

    few = data.range(100)
    total = aggregate.AggregateFn(
        init=lambda key: [],
        accumulate_row=lambda pids, row: [*pids, os.getpid()],
        merge=lambda one, other: [*one, *other, os.getpid()],
        finalize=lambda pids: [*pids, os.getpid()],
        name="pids",
    )
    for dataset in (few.sort("id"), few.random_shuffle(), few.groupby("id").sum("id")):
        assert os.getpid() not in {row["pid"] for row in dataset.map_batches(pid).take_all()}
    (row,) = few.groupby(None).aggregate(total).take_all()
    assert os.getpid() not in row["pids"]


def test_all_that_a_consumer_left_is_gone_soon():
    """Within a second where the machine is not busy."""

    def slow(batch):
        time.sleep(0.02)
        return {"x": np.zeros((len(batch["id"]), 1 << 17))}

    wait_until(nothing_runs, "something runs before")
    before = used_bytes()
    for way in ("break", "garbage", "close"):
        iterator = iter(
            data.range(500, override_num_blocks=500).map_batches(slow).iter_batches(batch_size=None)
        )
        held = next(iterator)
        assert used_bytes() > before
        if way == "break":
            for _held in iterator:
                break
            del _held
        if way == "close":
            iterator.close()
        del iterator, held
        wait_until(nothing_runs, f"{way}: something runs", seconds=10)
        gc.collect()
        wait_until(lambda: used_bytes() <= before, f"{way}: bytes are left")


def keyed(batch):
    return {**batch, "x": np.ones((len(batch["id"]), 1 << 12)), "k": batch["id"] % 5}


EXCHANGES = {
    "sort": lambda rows: rows.sort("id", descending=True),
    "random_shuffle": lambda rows: rows.random_shuffle(),
    "groupby": lambda rows: rows.groupby("k").map_groups(lambda group: group),
    "repartition": lambda rows: rows.repartition(4, keys=["id"]),
    "join": lambda rows: rows.join(rows.select_columns("id"), "inner", 4, on=("id",)),
}


def test_exchanges_leave_no_object_when_they_are_used_or_left():
    rows = data.range(300, override_num_blocks=10).map_batches(keyed)
    left = len(state.list_objects())
    for make in EXCHANGES.values():
        assert len(make(rows).take_all()) == 300
        make(rows).take(3)
    gc.collect()
    wait_until(lambda: len(state.list_objects()) <= left)


def test_a_killed_driver_leaves_nothing(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, pathlib, time
import numpy as np, sheaf
from sheaf import data

class Slow:
    def __call__(self, batch):
        pathlib.Path({str(tmp_path)!r}, f"{{os.getpid()}}.pid").touch()
        time.sleep(0.05)
        return {{"x": np.zeros((len(batch["id"]), 1 << 17))}}

sheaf.init(address={sheaf.get_runtime_context().gcs_address!r}, log_to_driver=False)
data.range(5000, override_num_blocks=5000).map_batches(Slow, concurrency=1).materialize()
""")
    wait_until(nothing_runs, "something runs before")
    before = used_bytes()
    child = subprocess.Popen([sys.executable, program])
    try:
        wait_until(lambda: used_bytes() > before + (8 << 20), "the driver makes nothing")
        assert not nothing_runs()
    finally:
        child.kill()
        child.wait()
    wait_until(nothing_runs, "a task or an actor is left")
    wait_until(lambda: used_bytes() <= before, "objects are left")
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    wait_until(lambda: not any(map(is_running, pids)), "the actor's process is left")


def test_a_store_full_of_others_makes_slower_or_is_an_error():
    held = sheaf.get([sheaf.put(np.zeros(4 << 20, np.uint8)) for _ in range(52)])  # 208 MiB.
    dataset = data.range(40, override_num_blocks=40).map_batches(
        lambda b: {"id": b["id"], "x": np.ones((len(b["id"]), 1 << 18))}
    )
    began = time.monotonic()
    try:
        assert sum(int(b["id"][0]) for b in dataset.iter_batches(batch_size=None)) == 780
    except Exception as error:
        assert "StoreFull" in repr(error) or isinstance(error, ObjectStoreFullError), error
    assert time.monotonic() - began < 60
    del held
    assert dataset.count() == 40


def test_a_straggler_is_named():
    def one_is_slow(batch):
        time.sleep(1.5 if 30 in batch["id"] else 0.05)
        return batch

    dataset = data.range(40, override_num_blocks=8).map_batches(one_is_slow)
    assert len(dataset.take_all()) == 40
    assert "Stragglers: 1 tasks took over 10 x the median" in dataset.stats(), dataset.stats()


def coordinator_pid():
    (row,) = state.list_actors(
        filters=[("state", "=", "ALIVE"), ("class_name", "=", "Coordinator")]
    )
    return row["pid"]


def test_consumers_of_a_killed_coordinator_get_an_error(tmp_path):
    parts = limited(wide).streaming_split(2, equal=True)

    @sheaf.remote(num_cpus=0)
    def consume(iterator, path):
        try:
            for _ in iterator.iter_batches(batch_size=1):
                pathlib.Path(path).touch()
                time.sleep(0.2)
        except RayActorError:
            return "told"

    told = [consume.remote(part, f"{tmp_path}/{n}") for n, part in enumerate(parts)]
    wait_until(lambda: len(os.listdir(tmp_path)) == 2, "they do not begin")
    os.kill(coordinator_pid(), signal.SIGKILL)
    assert sheaf.get(told, timeout=30) == ["told", "told"]
    del parts
    wait_until(nothing_runs, "its tasks are left")


def test_consumers_that_leave_a_split_end_what_it_runs():
    """And may begin another epoch, which is whole."""
    wait_until(nothing_runs, "something runs before")
    before = used_bytes()
    parts = limited(wide).streaming_split(2, equal=True)

    @sheaf.remote(num_cpus=0)
    def first(iterator):
        return len(next(iter(iterator.iter_batches(batch_size=1)))["x"])

    @sheaf.remote(num_cpus=0)
    def all_of_it(iterator):
        return [int(x) for b in iterator.iter_batches(batch_size=None) for x in b["x"][:, 0]]

    assert sheaf.get([first.remote(part) for part in parts]) == [1, 1]
    wait_until(lambda: used_bytes() <= before, lambda: f"{used_bytes()} bytes, before {before}")
    wait_until(lambda: sheaf.available_resources().get("CPU") == 2, "its tasks are left")
    one, other = sheaf.get([all_of_it.remote(part) for part in parts])
    assert sorted(one + other) == list(range(20)) and len(one) == 10


def test_rows_of_a_trainer_whose_worker_is_killed_are_in_one_epoch_that_lasts(tmp_path):
    """Each row of each epoch once, in the records of those that reported it."""
    rows, epochs = 1200, 3

    def loop(config):
        rank = train.get_context().get_world_rank()
        shard = train.get_dataset_shard("train")
        start = 0
        if (checkpoint := train.get_checkpoint()) is not None:
            with checkpoint.as_directory() as folder:
                start = int((pathlib.Path(folder) / "epoch").read_text()) + 1
        for epoch in range(start, epochs):
            seen = []
            for batch in shard.iter_batches(batch_size=50):
                seen += batch["id"].tolist()
                if config["rank"] == rank and config["row"] in batch["id"] + 2000 * epoch:
                    data_kills.Death(config["folder"]).come()
            made = pathlib.Path(config["folder"]) / f"made-{rank}"
            made.mkdir(exist_ok=True)
            (made / "epoch").write_text(str(epoch))
            saved = train.Checkpoint.from_directory(str(made)) if rank == 0 else None
            train.report({"epoch": epoch, "seen": seen}, checkpoint=saved)

    class Records(train.UserCallback):
        """What each report of all workers said; a report that is rolled back goes."""

        kept = []

        def after_report(self, run_context, metrics, checkpoint):
            number = metrics[0]["epoch"]
            del self.kept[number:]
            self.kept.append([row for one in metrics for row in one["seen"]])

    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    records = Records()
    train.DataParallelTrainer(
        loop,
        # Whoever has the row in the drawn epoch dies there; of equal parts either may.
        train_loop_config={
            "rank": draw.randrange(2),
            "row": draw.randrange(rows) + 2000 * draw.randrange(epochs),
            "folder": str(deaths),
        },
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        datasets={"train": data.range(rows, override_num_blocks=8).map_batches(lambda b: b)},
        run_config=train.RunConfig(
            storage_path=str(tmp_path / "runs"),
            failure_config=train.FailureConfig(max_failures=2),
            callbacks=[records],
        ),
    ).fit()
    assert len(records.kept) == epochs, f"seed {seed}"
    for epoch in records.kept:
        assert sorted(epoch) == list(range(rows)), f"seed {seed}"
