# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets that keep their blocks: each is made once, and what had to go, or was lost, is made again
as it was."""

import gc
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import urllib.request

import numpy as np
import pandas as pd
import pytest
import sheaf
from conftest import joined_cluster, wait_until
from sheaf import cloudpickle, data
from sheaf.data import errors
from sheaf.experimental import locations

STORE = 128 << 20
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=STORE, log_to_driver=False)
    yield
    sheaf.shutdown()


@pytest.fixture
def context():
    with data.DataContext.current(data.DataContext.get_current().copy()) as context:
        yield context


def figure(name):
    url = f"http://127.0.0.1:{sheaf.nodes()[0]['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


class Counted:
    """A function over batches whose calls leave marks, as they run anywhere."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder) / "calls"
        self.folder.mkdir()

    def __call__(self, batch):
        number = int(batch["id"][0])
        (self.folder / f"{number}.{os.getpid()}.{random.random()}").touch()
        return wide(batch)

    def count(self):
        return len(list(self.folder.iterdir()))


def wide(batch):
    """2 MiB for each row."""
    return {"id": batch["id"], "x": np.zeros((len(batch["id"]), MIB // 4)) + batch["id"][:, None]}


def blocks(function, count=20):
    """Blocks of 2 MiB."""
    return data.range(count, override_num_blocks=count).map_batches(function)


def numbers(dataset):
    """The rows of `blocks`, each of which is looked at as a whole."""
    found = []
    for batch in dataset.iter_batches(batch_size=None):
        assert (batch["x"] == batch["id"][:, None]).all()
        found += batch["id"].tolist()
    return found


@pytest.fixture
def store_is_left():
    """Waits until the store has no more objects than before the test."""

    def objects():
        gc.collect()
        return figure("sheaf_store_objects")

    before = objects()
    return lambda: wait_until(
        lambda: objects() <= before, lambda: f"{objects()} objects; there were {before}"
    )


def says(text, wanted):
    """Waits for it: a task whose last block has come may not have ended yet."""
    wait_until(lambda: wanted in text(), lambda: f"{wanted!r}: not in {text()!r}")


def recomputed(cached):
    """How many blocks were made again, by what is said of the dataset."""
    return int(re.search(r"(\d+) recomputed", cached._plan.described)[1])


# In memory.


def test_a_cache_that_has_room_is_made_once(tmp_path, capsys):
    counted = Counted(tmp_path)
    cached = blocks(counted).cache("memory")
    for _ in range(3):
        assert numbers(cached) == list(range(20))
    assert counted.count() == 20
    assert "cached (memory, 20 of 20 blocks in memory, 0 recomputed)" in cached.stats()
    cached.map(lambda row: {"id": row["id"]}).explain()
    assert "cached (memory, 20 of 20 blocks in memory, 0 recomputed)" in capsys.readouterr().out
    assert cached.num_blocks() == 20 and cached.count() == 20


def test_beyond_its_bound_blocks_go_and_are_made_again(tmp_path, context):
    context.cache_memory_bytes = 7 * MIB
    counted = Counted(tmp_path)
    cached = blocks(counted, 7).cache("memory")  # So few that each has a task of its own.
    for scan in range(1, 6):  # More often than a task is tried again.
        assert numbers(cached) == list(range(7))
        says(cached.stats, "cached (memory, 3 of 7 blocks in memory, ")
        # On a busy machine one may go before it is read, and comes once more.
        assert 7 + scan * 4 <= counted.count() <= 7 + scan * 7
    assert cached.map(lambda row: {"id": row["id"]}).sum("id") == 21
    says(lambda: cached._plan.described, "cached (memory, 3 of 7 blocks in memory, ")
    assert recomputed(cached) == counted.count() - 7


def test_a_cache_of_more_than_the_store_has_is_not_spilled(tmp_path, context, store_is_left):
    context.cache_memory_bytes = 17 * MIB
    spills = figure("sheaf_spills_total")
    counted = Counted(tmp_path)
    cached = blocks(counted, 80).cache("memory")  # 160 MiB
    assert counted.count() == 80
    assert "8 of 80" in cached._plan.described
    for _ in range(2):
        assert numbers(cached) == list(range(80))
        says(cached.stats, "cached (memory, 8 of 80 blocks in memory")
    assert cached.map(lambda row: {"id": row["id"]}).sum("id") == sum(range(80))
    assert figure("sheaf_spills_total") == spills
    assert counted.count() < 4 * 2 * 80  # Tasks make several blocks.
    cached.unpersist()
    store_is_left()


def test_the_cache_that_was_read_last_gives_its_blocks_last(context):
    context.cache_memory_bytes = 25 * MIB
    first, second = (blocks(wide, 10).cache("memory") for _ in range(2))

    def there(cached):
        return int(cached._plan.described.split()[2])

    wait_until(lambda: (there(first), there(second)) == (2, 10))
    assert numbers(first) == list(range(10))
    wait_until(lambda: (there(first), there(second)) == (10, 2))
    third = blocks(wide, 4).cache("memory")
    wait_until(lambda: (there(first), there(second), there(third)) == (8, 0, 4))
    assert numbers(second.limit(3)) == [0, 1, 2]


def test_unpersist_frees_the_store_and_what_was_derived_is_made_again(tmp_path, store_is_left):
    counted = Counted(tmp_path)
    source = blocks(counted)
    cached = source.cache("memory")
    derived = cached.map_batches(lambda batch: {"id": batch["id"]})
    assert cached.unpersist() is source
    store_is_left()
    assert counted.count() == 20
    assert derived.sum("id") == 190
    assert counted.count() >= 40
    store_is_left()


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_a_cache_behind_a_shuffle(level, context):
    context.cache_memory_bytes = 5 * MIB
    source = blocks(wide, 8).random_shuffle(seed=3).sort("id", descending=True)
    cached = source.cache(level)
    for _ in range(2):
        assert numbers(cached) == list(range(8))[::-1]
    assert numbers(blocks(wide, 3).union(cached.limit(2))) == [0, 1, 2, 7, 6]


@pytest.mark.parametrize("level", ["memory", "memory_and_disk", "disk"])
def test_a_cache_in_a_task_in_an_actor_and_pickled(level, context):
    context.cache_memory_bytes = 5 * MIB
    cached = blocks(wide, 10).cache(level)

    @sheaf.remote(num_cpus=0)
    def read(dataset):
        return numbers(dataset), dataset._plan.described

    @sheaf.remote(num_cpus=0)
    class Reader:
        def __init__(self, dataset):
            self.dataset = dataset

        def read(self):
            return numbers(self.dataset)

    reader = Reader.remote(cached)
    for _ in range(2):
        assert sheaf.get(read.remote(cached)) == (
            list(range(10)), f"cached ({level}, by another process)",
        )  # fmt: skip
        assert sheaf.get(reader.read.remote()) == list(range(10))
    copied = cloudpickle.loads(cloudpickle.dumps(cached))
    assert numbers(copied) == list(range(10))
    assert numbers(copied.unpersist()) == list(range(10))
    del reader


def test_what_could_not_be_made_again_stays_or_is_refused(context):
    context.cache_memory_bytes = 0

    class Wide:
        def __call__(self, batch):
            return wide(batch)

    actors = blocks(Wide, 3)
    with pytest.raises(ValueError, match="blocks of .*Wide.* come from actors.*'memory_and_disk'"):
        actors.cache("memory")
    source = data.range(3, override_num_blocks=3)
    once = source.map_batches(wide, max_retries=0).cache("memory")
    assert numbers(once) == [0, 1, 2]
    assert once._plan.described == (
        "cached (memory, 3 of 3 blocks in memory, 0 recomputed; 3 stay, as they could not be made "
        "again)"
    )
    frame = pd.DataFrame({"id": np.arange(1 << 18)})
    assert data.from_pandas(frame).cache("memory").sum("id") == frame["id"].sum()
    # What it is made from is held as long as it is.
    mapped = data.from_pandas(frame).map_batches(wide_sum).cache("memory")
    gc.collect()
    assert mapped.take_all() == mapped.take_all() == [{"sum": int(frame["id"].sum())}]


def test_a_large_function_is_kept_for_as_long_as_blocks_are_made_again_by_it(context):
    context.cache_memory_bytes = 0
    table = np.arange(20_000.0)  # More than goes inside a call.

    def looked_up(batch):
        return {**wide(batch), "y": table[batch["id"]]}

    cached = blocks(looked_up, 3).cache("memory")
    gc.collect()
    for _ in range(2):
        assert cached.sum("y") == 3
    says(lambda: cached._plan.described, "cached (memory, 0 of 3 blocks in memory, ")
    assert recomputed(cached) >= 3


def wide_sum(batch):
    return {"sum": [int(batch["id"].sum())]}


@pytest.mark.parametrize("level", ["memory", "disk"])
@pytest.mark.parametrize("seed", [1, random.randrange(1 << 32)])
def test_reads_in_any_order_are_those_of_a_plain_run(level, seed, context):
    rng = random.Random(seed)
    print(f"seed {seed}")
    context.cache_memory_bytes = rng.choice([0, 1, 3, 9]) * MIB
    count = rng.choice([1, 7, 24])

    def made(batch):
        repeats = batch["id"] % 3 * 20_000
        return {"id": np.repeat(batch["id"], repeats), "x": np.ones(repeats.sum())}

    plain = data.range(24, override_num_blocks=count).map_batches(made)
    plain = rng.choice([lambda d: d, lambda d: d.repartition(5), lambda d: d.sort("id")])(plain)
    cached = plain.cache(level)
    reads = [
        lambda d: [t["id"].tolist() for t in d.limit(limit).iter_batches(batch_size=9_999)],
        lambda d: d.map_batches(lambda b: {"n": [len(b["id"])]}).sum("n"),
        lambda d: sorted(map(str, d.groupby("id").count().take_all())),
        lambda d: d.filter(lambda row: row["id"] == picked).count(),
        lambda d: d.union(d).sum("id"),
        lambda d: [part.count() for part in d.split(3)],
    ]
    for _ in range(5):
        limit, picked = rng.choice([1, 25_000, 10**6]), rng.randrange(24)
        read = rng.choice(reads)
        assert read(cached) == read(plain), (count, picked, limit, cached._plan.described)


def test_bytes_are_given_up_and_come_back():
    make = sheaf.remote(lambda: np.ones(MIB))
    ref, put = make.remote(), sheaf.put(np.ones(MIB))
    sheaf.get(ref)
    wait_until(lambda: locations.give_up([ref]) == [None])
    (is_later, why), again = locations.give_up([put, ref])
    assert not is_later and "it was put" in why and again is None
    assert locations.get_local_object_locations([ref])[ref]["node_ids"] == []
    assert sheaf.get(ref).sum() == MIB
    with pytest.raises(TypeError, match="item 0 is 1: want an ObjectRef"):
        locations.give_up([1])


# On disk.


def files_of(cached):
    return [pathlib.Path(bundle.block.path) for bundle in cached._plan.bundles]


def test_files_have_the_blocks_and_the_store_has_none(tmp_path, store_is_left):
    counted = Counted(tmp_path)
    cached = blocks(counted).cache("disk")
    store_is_left()
    files = files_of(cached)
    assert len(files) == 20 and all(2 * MIB < path.stat().st_size < 3 * MIB for path in files)
    assert {path.parent.stat().st_mode & 0o777 for path in files} == {0o700}
    for _ in range(2):
        assert numbers(cached) == list(range(20))
        assert cached.map(lambda row: {"id": row["id"]}).sum("id") == 190
    assert counted.count() == 20
    store_is_left()
    says(cached.stats, "cached (disk, 20 of 20 blocks on disk, 0 recomputed)")
    derived = cached.map_batches(lambda batch: {"id": batch["id"]})
    cached.unpersist()
    assert not any(path.parent.exists() for path in files)
    assert derived.sum("id") == 190 and counted.count() >= 40
    store_is_left()


def test_little_is_kept_by_the_process_that_has_it_anyway():
    cached = data.from_items([{"x": 1}, {"x": 2}]).map(lambda row: row).cache("disk")
    assert cached.take_all() == [{"x": 1}, {"x": 2}] and "0 of " in cached._plan.described
    assert data.range(0).cache("disk").count() == 0
    assert data.range(0).cache("memory").take_all() == []


def test_a_file_that_is_lost_or_damaged_is_made_again_and_written_once_more(
    tmp_path, store_is_left
):
    counted = Counted(tmp_path)
    cached = blocks(counted, 6).cache("disk")
    files = files_of(cached)
    files[1].unlink()
    files[3].write_bytes(files[3].read_bytes()[:-100])
    files[4].write_bytes(b"")
    assert numbers(cached) == list(range(6))
    assert counted.count() == 9
    wait_until(lambda: all(path.exists() and path.stat().st_size > MIB for path in files))
    says(lambda: cached._plan.described, ", 3 recomputed")
    store_is_left()
    assert numbers(cached) == cached.map(lambda row: row).to_pandas()["id"].tolist()
    assert counted.count() == 9


def test_what_actors_made_is_cached_on_disk_but_not_made_again(store_is_left):
    class Wide:
        def __call__(self, batch):
            return wide(batch)

    cached = blocks(Wide, 3).cache("disk")
    assert numbers(cached) == [0, 1, 2]
    store_is_left()
    files_of(cached)[1].unlink()
    with pytest.raises(errors.CacheLostError, match="1.arrow.*came from an actor"):
        numbers(cached)
    with pytest.raises(errors.CacheLostError, match="1.arrow"):
        cached.map(lambda row: row).materialize()


def test_files_hold_all_types_of_columns(context):
    rows = 6000
    frame = pd.DataFrame({
        "words": pd.Categorical([f"w{i % 7}" for i in range(rows)]),
        "nothing": [None, 1.5] * (rows // 2),
        "text": ["x" * (i % 50) for i in range(rows)],
        "when": pd.date_range("2020", periods=rows),
        "lists": [[i, i + 1] for i in range(rows)],
    })  # fmt: skip

    def made(batch):
        return frame.iloc[batch["id"].min() : batch["id"].max() + 1].reset_index(drop=True)

    source = data.range(rows, override_num_blocks=3).map_batches(made).repartition(2)
    assert source.cache("disk").to_pandas().equals(source.to_pandas())
    tensors = data.range(4, override_num_blocks=1).map_batches(
        lambda b: {"t": np.arange(4 * 50 * 50.0).reshape(4, 50, 50)}
    )
    cached = tensors.cache("disk")
    assert len(files_of(cached)) == 1
    assert (cached.take_batch(4)["t"] == tensors.take_batch(4)["t"]).all()


def test_a_directory_of_the_users_is_used_and_emptied(tmp_path, context):
    context.cache_directory = str(tmp_path)
    cached = blocks(wide, 3).cache("disk")
    assert all(path.is_relative_to(tmp_path) for path in files_of(cached))
    del cached  # The last reference goes.
    gc.collect()
    wait_until(lambda: not list(tmp_path.iterdir()))
    (tmp_path / "file").touch()
    context.cache_directory = str(tmp_path / "file")
    with pytest.raises(errors.WriteError, match="/file/cache-.*Not a directory"):
        blocks(wide, 3).cache("disk")


DRIVER = """
import sys, time
import sheaf
sys.path[:0] = [sys.argv[2]]
import test_caching
sheaf.init(address=sys.argv[1], log_to_driver=False)
cached = test_caching.blocks(test_caching.wide, 3).cache("disk")
print(*test_caching.files_of(cached), flush=True)
time.sleep(600)
"""


def test_the_files_go_with_the_job_however_it_ends():
    address = sheaf.get_runtime_context().gcs_address
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, address, os.path.dirname(__file__)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        files = [pathlib.Path(path) for path in driver.stdout.readline().split()]
        assert len(files) == 3 and all(path.exists() for path in files)
        folder = files[0].parent.parent
        driver.send_signal(signal.SIGKILL)
        wait_until(lambda: not folder.exists())
    finally:
        driver.kill()
        driver.wait()


FULL = """
import os, sys
import sheaf
from sheaf import data, exceptions
sys.path[:0] = [sys.argv[2]]
import test_caching

sheaf.init(num_cpus=2, object_store_memory=80 << 20, log_to_driver=False)
data.DataContext.get_current().cache_directory = sys.argv[1]
try:
    test_caching.blocks(test_caching.wide).cache("disk")
except exceptions.OutOfDiskError as error:
    print("No space left on device" in str(error))
print(os.listdir(sys.argv[1]))
"""


def test_a_full_disk_is_an_error_and_nothing_is_left(tmp_path):
    apart = ["unshare", "--mount", "--map-root-user"]
    allowed = subprocess.run(
        [*apart, "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True, text=True
    )
    if allowed.returncode != 0:
        pytest.skip(f"a mount namespace is not allowed here: {allowed.stderr.strip()}")
    script = f"mount -t tmpfs -o size=8m none '{tmp_path}' && exec '{sys.executable}' -c \"$0\" $@"
    done = subprocess.run(
        [*apart, "sh", "-c", script, FULL, str(tmp_path), os.path.dirname(__file__)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "[]"], done.stdout + done.stderr


# Of nodes that are lost. The last, as it ends the cluster of the others.


@pytest.mark.parametrize("of_actors", [False, True])
def test_a_node_that_is_lost_takes_no_block_that_has_a_copy(of_actors, tmp_path):
    class Wide:
        def __call__(self, batch):
            return wide(batch)

    counted = Counted(tmp_path)
    far = {"num_cpus": 2, "object_store_memory": STORE, "resources": {"far": 2}}
    with joined_cluster({"num_cpus": 1, "object_store_memory": STORE}, far, far) as cluster:
        source = data.range(8, override_num_blocks=8).map_batches(
            Wide if of_actors else counted, resources={"far": 0.1}, concurrency=2
        )
        cached = source.cache("disk", replicas=2)
        calls = counted.count()
        for bundle in cached._plan.bundles:
            (copy,) = bundle.block.copies
            assert copy.node_id != bundle.block.node_id and copy.path != bundle.block.path
            assert (
                pathlib.Path(copy.path).read_bytes() == pathlib.Path(bundle.block.path).read_bytes()
            )
        assert numbers(cached) == list(range(8))
        holder = cached._plan.bundles[0].block.node_id
        (lost,) = (node for node in cluster.worker_nodes if node.node_id == holder)
        cluster.remove_node(lost, allow_graceful=False)
        for _ in range(2):
            assert numbers(cached) == list(range(8))
            assert cached.map(lambda row: {"id": row["id"]}).sum("id") == 28
        assert counted.count() == calls
        says(cached.stats, "cached (disk, 8 of 8 blocks on disk in 2 copies, 0 recomputed)")
        files = [pathlib.Path(bundle.block.copies[0].path) for bundle in cached._plan.bundles]
        cached.unpersist()
        left = [path for path in files if path.exists()]
        assert all(str(lost.session) in str(path) for path in left), left


def test_a_node_that_is_lost_takes_only_what_can_be_made_again(context):
    context.cache_memory_bytes = 9 * MIB
    far = {"num_cpus": 1, "object_store_memory": STORE, "resources": {"far": 2}}
    with joined_cluster({"num_cpus": 2, "object_store_memory": STORE}, far) as cluster:
        source = data.range(8, override_num_blocks=8).map_batches(wide, resources={"far": 0.1})
        cached = {level: source.cache(level) for level in ("memory", "disk")}
        assert numbers(cached["disk"].map_batches(lambda batch: batch)) == list(range(8))
        assert "0 recomputed" in cached["disk"]._plan.described
        (lost,) = cluster.worker_nodes
        cluster.remove_node(lost, allow_graceful=False)
        cluster.add_node(**far)
        for dataset in cached.values():
            assert numbers(dataset) == list(range(8))
            assert dataset.map(lambda row: {"id": row["id"]}).sum("id") == 28
        says(lambda: cached["disk"]._plan.described, ", 8 recomputed")
        new = [node["NodeID"] for node in sheaf.nodes() if node["Alive"]]
        wait_until(
            lambda: all(b.block.node_id in new for b in cached["disk"]._plan.bundles),
            "the files are not written once more",
        )
