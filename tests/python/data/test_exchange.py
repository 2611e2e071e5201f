# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Exchanges: which partition rows go to, how many objects that takes, and what is done with sizes
that are known before anything is reduced."""

import re
import subprocess
import sys

import numpy as np
import pytest
import sheaf
from sheaf import data
from sheaf.util import state

pa = pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow.parquet as pq  # noqa: E402
from sheaf.data import shell  # noqa: E402
from sheaf.data.exchanges import partition, skew  # noqa: E402
from sheaf.data.expressions import col  # noqa: E402
from sheaf.data.planner import Planner  # noqa: E402

MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=256 * MIB, log_to_driver=False)
    yield
    sheaf.shutdown()


# Rows to partitions.


def parts_of(table, keys, count=16):
    """The partition of each row, by its column "row"."""
    made, borders = partition.by_hash(table, keys, count)
    assert sorted(made["row"].to_pylist()) == list(range(len(table)))
    found = {}
    for part, (start, stop) in enumerate(zip(borders.offsets, borders.offsets[1:])):
        found.update(dict.fromkeys(made["row"].to_pylist()[start:stop], part))
    return [found[row] for row in range(len(table))]


def table_of(values, kind=None, **more):
    return pa.table({"k": pa.array(values, kind), "row": range(len(values)), **more})


def test_equal_keys_meet_whatever_their_types():
    numbers = [0, 1, 7, None, 1 << 40]
    want = parts_of(table_of(numbers, pa.int64()), ["k"])
    assert parts_of(table_of(numbers, pa.float64()), ["k"]) == want
    assert parts_of(table_of([-0.0, 1, 7, None, float(1 << 40)]), ["k"]) == want
    assert parts_of(table_of([None] * 2, pa.null()), ["k"]) == [want[3]] * 2
    texts = ["a", "", None, "b" * 50, "a"]
    want = parts_of(table_of(texts), ["k"])
    assert want[0] == want[4]
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert parts_of(table_of(texts, kind), ["k"]) == want


def test_keys_and_columns_that_kernels_do_not_move():
    nested = parts_of(table_of([[1], [2, 3], None, [1]]), ["k"])
    assert nested[0] == nested[3]
    plain = table_of([5, 6, 5])
    view = plain.append_column("\0v", pa.array(["x", "y", "z"], pa.string_view()))
    assert parts_of(view, ["k"]) == parts_of(plain, ["k"])
    made, _ = partition.at_random(view, 3, [1])
    assert sorted(made["row"].to_pylist()) == [0, 1, 2]
    assert partition.take(view, np.array([2, 0]))["\0v"].to_pylist() == ["z", "x"]


@pytest.mark.parametrize("falls", [False, True])
def test_bounds_are_in_the_order_of_the_sort(falls):
    values = [5.0, None, float("nan"), 1.0, 9.0, 5.0]
    bounds = pa.table({"k": [9.0, 5.0] if falls else [5.0, 9.0]})
    made, borders = partition.by_bounds(table_of(values), [("k", falls)], bounds)
    rows = made["row"].to_pylist()
    parts = [rows[a:b] for a, b in zip(borders.offsets, borders.offsets[1:])]
    assert parts == ([[], [4], [0, 1, 2, 3, 5]] if falls else [[3], [0, 5], [1, 2, 4]])


# Objects.


def stored():
    return [row for row in state.list_objects(limit=10_000) if row["where"] == "store"]


def test_a_map_task_makes_one_object(cluster):
    """200 map tasks and 200 reducers have 200 objects between them, and not 40,000."""
    rows = data.range(200 * 27_000, override_num_blocks=200).random_shuffle(num_blocks=200, seed=1)
    run = shell.Execution(rows._plan, data.DataContext.get_current())
    total = next(run).metadata.num_rows
    found = stored()
    assert 200 <= len(found) <= 220
    total += sum(bundle.metadata.num_rows for bundle in run)
    assert total == 200 * 27_000


def test_keys_of_two_types_join(cluster):
    left = data.from_arrow(pa.table({"k": pa.array(range(1000), pa.int32()), "a": range(1000)}))
    right = data.from_arrow(pa.table({"k": np.arange(500, 1500.0), "b": range(1000)}))
    joined = left.join(right, "inner", 8, on=("k",))
    assert joined.count() == 500 and joined.sum("a") == sum(range(500, 1000))


# Joins with a small side.

WANTED = {
    "inner": lambda a, b: a & b,
    "left_outer": lambda a, b: a,
    "right_outer": lambda a, b: b,
    "full_outer": lambda a, b: a | b,
    "left_semi": lambda a, b: a & b,
    "right_semi": lambda a, b: a & b,
    "left_anti": lambda a, b: a - b,
    "right_anti": lambda a, b: b - a,
}


@pytest.mark.parametrize("small", [0, 1])
@pytest.mark.parametrize("kind", WANTED)
def test_a_join_moves_only_its_small_side(cluster, kind, small):
    """Where no row of the large side needs to know of another one; without that, both sides."""
    many, few = set(range(9000)), set(range(8990, 9010))
    large = data.range(9000, override_num_blocks=3).map_batches(lambda b: b)
    little = data.from_items([{"id": i} for i in sorted(few)])
    sides = (little, large) if small == 0 else (large, little)
    joined = sides[0].join(sides[1], kind, 4, on=("id",))
    sets = (few, many) if small == 0 else (many, few)
    assert {row["id"] for row in joined.take_all()} == WANTED[kind](*sets)
    needs_both = kind == "full_outer" or kind.startswith(("left", "right")[small])
    steps = Planner(data.DataContext.get_current(), 2).plan(joined._plan)
    assert any("Partition" in step.name for step in steps) == needs_both


def test_what_is_grouped_or_joined_is_read_by_few_tasks(tmp_path):
    table = pa.table({"key": np.arange(40_000) % 7, "text": ["x" * 400] * 40_000})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=400, use_dictionary=False)

    def reading(dataset):
        steps = Planner(data.DataContext.get_current(), 2).plan(dataset._plan)
        return max(len(step.bundles) for step in steps if step.kind == "source")

    rows, slow = data.read_parquet(tmp_path), data.read_parquet(tmp_path).map_batches(dict)
    other = data.from_items([{"key": 1, "y": 2}])
    assert reading(rows) == reading(slow.groupby("key").count()) == reading(rows.sort("key")) > 10
    assert reading(rows.filter(expr=col("key") < 5).groupby("key").max("text")) == 8
    assert reading(rows.join(other, "inner", 2, on=("key",))) == 8
    asked = data.read_parquet(tmp_path, override_num_blocks=20)
    assert reading(asked.groupby("key").max("text")) == 20


def test_three_sides_join_in_one_task(cluster):
    large = data.range(5000, override_num_blocks=2).map_batches(
        lambda b: {"a": b["id"] % 10, "b": b["id"] % 7}
    )
    first = data.from_items([{"a": i, "x": i * i} for i in range(10)])
    second = data.from_items([{"b": i, "y": -i} for i in range(7)])
    joined = large.join(first, "inner", 2, on=("a",)).join(second, "inner", 2, on=("b",))
    assert joined.sum("x") == sum((i % 10) ** 2 for i in range(5000))
    assert joined.sum("y") == -sum(i % 7 for i in range(5000))


# Skew.


def skewed(batch):
    return {"k": np.where(batch["id"] % 10 < 6, 7, batch["id"]), "v": batch["id"]}


def test_skew_says_which_key_is_frequent(cluster):
    rows = data.range(60_000, override_num_blocks=4).map_batches(skewed)
    groups = rows.groupby("k", num_partitions=20).map_groups(
        lambda g: {"n": [len(g["v"])]}, batch_format="numpy"
    )
    assert groups.skew() == []
    assert groups.sum("n") == 60_000
    made = groups.materialize()
    (found,) = made.skew()
    assert found.partitions == 20
    ((key,), many), *_ = found.top_keys
    assert key == 7 and 30_000 <= many <= 42_000
    assert found.rows.max >= 36_000 and found.rows.ratio > 10 and found.bytes.ratio > 10
    assert found.seconds.max > 0
    assert "The key 7 has" in found.advice and "salt" in found.advice
    told = str(found)
    assert told.startswith("MapGroups") and "20 partitions" in told and "Frequent keys" in told


def test_even_partitions_want_no_advice(cluster):
    made = data.range(60_000, override_num_blocks=4).map_batches(lambda b: b).random_shuffle()
    (found,) = made.materialize().skew()
    assert found.rows.ratio < 2 and not found.top_keys and not found.advice
    assert str(found).endswith("The partitions are even.")


def test_a_partition_that_one_task_gets_is_warned_of(caplog):
    counts = skew.Counts(sizes=np.array([300 << 20, 10 << 20, 0, 12 << 20]))
    counts.warn("MapGroups", skew.Skewed())
    assert "MapGroups: one of 4 partitions has 300 MiB, the median 12 MiB" in caplog.text
    caplog.clear()
    skew.Counts(sizes=np.array([300 << 20, 100 << 20])).warn("MapGroups", skew.Skewed())
    assert not caplog.text


# More than the object store holds.


def test_groups_joins_and_sorts_in_rounds_are_exact(cluster):
    """10 MB with a budget of 2 MiB."""
    count, keys = 40_000, 5_003

    def wide(batch):
        k = batch["id"] * 7919 % keys
        return {"k": k, "id": batch["id"], **{f"c{n}": batch["id"] * n for n in range(30)}}

    context = data.DataContext.get_current().copy()
    context.execution_options.resource_limits = data.ExecutionResources(object_store_memory=2 << 20)
    with data.DataContext.current(context):
        rows = data.range(count, override_num_blocks=20).map_batches(wide, batch_size=None)
        other = data.range(keys, override_num_blocks=4).map_batches(
            lambda b: {"k": b["id"], "v": b["id"] * 3, **{f"d{n}": b["id"] for n in range(60)}},
            batch_size=None,
        )
        by_key = np.arange(count) * 7919 % keys
        sums = rows.groupby("k").sum("id").to_pandas().sort_values("k")
        joined = rows.join(other, "inner", 8, on=("k",)).materialize()
        in_order = rows.sort("k").materialize()
    assert (sums["sum(id)"].to_numpy() == np.bincount(by_key, weights=np.arange(count))).all()
    assert joined.count() == count and joined.sum("id") == count * (count - 1) // 2
    assert joined.sum("v") == 3 * by_key.sum() and joined.sum("d7") == by_key.sum()
    found = np.array([row["k"] for row in in_order.select_columns(["k"]).take_all()])
    assert (found == np.sort(by_key)).all()
    for made, how in ((joined, "Merge"), (in_order, "SortRun")):
        assert re.search(how + r": [1-9]\d* tasks", made.stats()), made.stats()


def test_what_the_store_does_not_hold_is_merged_in_rounds():
    """70 MB through a store of 64 MiB, of which an exchange has half: every row comes once."""
    code = """
import numpy as np, pyarrow as pa, sheaf
import sheaf.arrow
from sheaf import data
from sheaf.data.exchanges import exchange
sheaf.init(num_cpus=2, object_store_memory=64 << 20, log_to_driver=False)
data.DataContext.get_current().target_max_block_size = 4 << 20

def wide(batch):
    ids = batch["id"]
    keys = ids * 7919 % 1_000_003
    pad = pa.FixedSizeBinaryArray.from_buffers(pa.binary(84), len(ids), [None, pa.py_buffer(bytes(84 * len(ids)))])
    return pa.table({"key": keys, "id": ids, "pad": pad})

def digest(table):
    hashes = pa.table(sheaf.arrow.hash(table, ["key", "id", "pad"])).column(0).to_numpy()
    return int(hashes.sum(dtype=np.uint64))

merged, merge = [], exchange.Method.arrange_round
exchange.Method.arrange_round = lambda self, given: merged.append(1) or merge(self, given)
rows = data.range(700_000, override_num_blocks=20).map_batches(wide, batch_size=None)
count = total = 0
for batch in rows.random_shuffle(seed=1).iter_batches(batch_size=None, batch_format="pyarrow"):
    count, total = count + batch.num_rows, (total + digest(batch)) % 2**64
made = [wide({"id": np.arange(a, a + 35_000)}) for a in range(0, 700_000, 35_000)]
assert merged and count == 700_000 and total == sum(map(digest, made)) % 2**64
print("exact")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "exact\n", done.stdout + done.stderr
