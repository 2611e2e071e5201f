# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sorts by samples and by sorted runs, of blocks whose types differ, give the order that Python
gives, and every row once. RUNS_SEED names the first of RUNS_SEEDS seeds (60)."""

import functools
import math
import os
import random
import re
import subprocess
import sys
import time
import types

import numpy as np
import pytest
import sheaf
from sheaf import data

pa = pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

from sheaf.data import block as blocks  # noqa: E402
from sheaf.data.exchanges import runs, sort  # noqa: E402
from sheaf.data.operators import Bundle  # noqa: E402
from sheaf.data.planner import Planner  # noqa: E402

FIRST = int(os.environ.get("RUNS_SEED") or random.randrange(1 << 30))
FLOATS = [math.nan, 0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, 2.0**60]
WIDE = [2**60 + n for n in range(5)]  # As floats some are equal.
VALUES = {  # Of a key: what it has in blocks, and the types that those may be of.
    "wide": [
        ([-3, 0, 1, *WIDE], [pa.int64(), pa.uint64()]),
        ([-3, 0, 2], [pa.int8(), pa.int32()]),
        (FLOATS, [pa.float64(), pa.float32()]),
        ([], [pa.null()]),
    ],
    "text": [
        (
            ["", "a", "b", "aa", "nan", "\0", "ä" * 9],
            [
                pa.string(),
                pa.large_string(),
                pa.string_view(),
                pa.dictionary(pa.int8(), pa.string()),
            ],
        )
    ],
    "moment": [([-5, 3, 10**9, 10**9 + 1], [pa.timestamp("ns")]), ([], [pa.null()])],
    "flag": [([True, False], [pa.bool_()])],
}


def column(rng, key, count):
    values, kinds = rng.choice(VALUES[key])
    kind = rng.choice(kinds)
    if pa.types.is_unsigned_integer(kind):
        values = [value for value in values if value >= 0]
    if pa.types.is_float32(kind):
        values = [0.25 if value == 2.0**60 else value for value in values]
    return pa.array([rng.choice([None, *values]) for _ in range(count)], kind)


def before(keys, one, other):
    """-1, 0 or 1, as sorted() wants it: NaN and then NULL come last."""
    for name, down in keys:
        a, b = one[name], other[name]
        last = [2 if v is None else int(v != v) for v in (a, b)]
        if last != [0, 0]:
            if last[0] != last[1]:
                return last[0] - last[1]
        elif a != b:
            return -1 if (a < b) != down else 1
    return 0


def placed(table, extra):
    size = blocks.size_bytes(table)
    metadata = types.SimpleNamespace(extra=extra, num_rows=table.num_rows)
    return Bundle(table, 0, table.num_rows, size, metadata)


def made(function, work, *more):
    given = [blocks.slice_rows(b.block, b.start, b.num_rows) for b in work.bundles]
    return function(given, work.payload, *more)


def in_runs(method, bundles):
    """The works of reducers behind runs."""
    tables = [made(method.work, work) for work in method.arrange_runs([bundles])]
    method.arrange_samples([[placed(*pair) for pairs in tables for pair in pairs]])
    method.arrange_cuts([[]])
    return method.arrange([[]])


def by_samples(method, bundles):
    """The works of reducers behind blocks that were cut between samples."""
    samples = [made(method.work, work) for work in method.arrange_samples([bundles])]
    cut = method.arrange_cuts([[placed(*pair) for pairs in samples for pair in pairs]])
    pairs = [method.partition(work.bundles[0].block, work.payload, 0) for work in cut]
    return method.arrange([[placed(*pair) for pair in pairs]])


@pytest.mark.parametrize("way", [in_runs, by_samples])
def test_rows_are_in_the_order_of_python(way, monkeypatch):
    context = types.SimpleNamespace(
        small_input_bytes=0, skewed_partition_factor=1.5, skewed_partition_bytes=0
    )
    monkeypatch.setattr(runs, "_PART_BYTES", 64)
    for seed in range(FIRST, FIRST + int(os.environ.get("RUNS_SEEDS", "60"))):
        print("RUNS_SEED", seed)
        rng = random.Random(seed)
        names = rng.sample(list(VALUES), rng.choice([1, 2, 3]))
        keys = tuple((name, rng.random() < 0.5) for name in names)
        counts = [rng.choice([0, 1, 40, 90]) for _ in range(rng.randrange(1, 8))]
        tables = [
            pa.table({**{name: column(rng, name, n) for name in names}, "row": range(at, at + n)})
            for n, at in zip(counts, [sum(counts[:i]) for i in range(len(counts))])
        ]
        monkeypatch.setattr(runs, "_LEAST_RUN_BYTES", rng.choice([1, 500, 3000]))
        method = sort.Sort(keys=keys).begin([None], rng.choice([1, 2]), context, 4)
        method.count, method.most_bytes = (
            rng.choice([1, 2, 5, 20]),
            rng.choice([100, 1000, 1 << 20]),
        )
        works = way(method, [placed(table, None) for table in tables]) if sum(counts) else []
        found = [table for work in works for table in made(method.reduce, work)]
        order = [row for table in found for row in table["row"].to_pylist()]
        whole = blocks.concat(tables)
        values = {
            name: (whole[name].cast(pa.int64()) if name == "moment" else whole[name]).to_pylist()
            for name in names
        }
        rows = [dict(zip(names, row)) for row in zip(*values.values())]
        assert sorted(order) == list(range(len(rows))), "rows are lost, or come twice"
        # Behind numbers that are equal only as floats, in a block that has them exactly, all else
        # is in the order of the exact ones.
        exact = keys[: names.index("wide") + 1] if "wide" in names else keys
        ranks = functools.partial(before, exact)
        assert all(ranks(rows[a], rows[b]) <= 0 for a, b in zip(order, order[1:])), (seed, keys)
        if "wide" not in names:
            assert order == sorted(order, key=functools.cmp_to_key(lambda a, b: ranks(rows[a], rows[b]) or a - b))  # fmt: skip


# In a cluster.


@pytest.fixture(scope="module")
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=128 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


@pytest.fixture(params=[None, 1 << 20], ids=["samples", "runs"])
def mixed(request, cluster):
    """Blocks of integers, some beyond 2**53, and of floats; and whether a sort makes runs of them,
    as its budget is small."""

    def some(batch):
        ids = batch["id"]
        if ids[0] % 2000:
            return {"k": ids % 777 + 0.5, "id": ids, "pad": [bytes(900)] * len(ids)}
        return {"k": (ids % 777) * 2**52, "id": ids, "pad": [bytes(900)] * len(ids)}

    context = data.DataContext.get_current().copy()
    context.small_input_bytes = 0
    if request.param is not None:
        limits = data.ExecutionResources(object_store_memory=request.param)
        context.execution_options.resource_limits = limits
    with data.DataContext.current(context):
        rows = data.range(8000, override_num_blocks=8).map_batches(some, batch_size=None)
        yield rows, request.param is not None


def wanted():
    return sorted(
        float((i % 777) * 2**52) if i // 1000 % 2 == 0 else i % 777 + 0.5 for i in range(8000)
    )


@pytest.mark.parametrize("bounds", [None, [2.5, 400, 2.0**60], [10]])
def test_blocks_of_integers_and_of_floats(mixed, bounds):
    given, makes_runs = mixed
    made = given.sort("k", boundaries=bounds).materialize()
    assert (re.search(r"SortRun: [1-9]\d* tasks", made.stats()) is not None) == makes_runs
    rows = made.drop_columns(["pad"]).take_all()
    assert [float(row["k"]) for row in rows] == wanted()
    assert sorted(row["id"] for row in rows) == list(range(8000))


def test_boundaries_of_another_type_are_refused(mixed):
    with pytest.raises(TypeError, match="boundaries of type string for the column 'k'"):
        mixed[0].sort("k", boundaries=["7"]).materialize()


class Same:
    def __call__(self, batch):
        return batch


def test_what_is_sorted_or_zipped_keeps_its_order_whatever_the_budget(cluster):
    def free(dataset):
        operators = Planner(data.DataContext.get_current(), 2).plan(dataset._plan)
        return [operator.name for operator in operators if not operator.in_order]

    rows = data.range(10**7)
    same = {"fn": Same, "concurrency": 1}
    mixed = rows.map_batches(**same).random_shuffle().map_batches(**same)
    shuffle = ["RandomShufflePartition", "RandomShuffleMerge"]
    assert free(mixed)[-2:] == ["RandomShuffle", "MapBatches(Same)"]
    above = ["ReadRange", "ReadRange", "MapBatches(Same)", *shuffle]
    assert free(mixed.sort("id").map_batches(**same).limit(5)) == above
    assert free(mixed.zip(mixed).map_batches(**same)) == [*above, *above, "Zip", "MapBatches(Same)"]
    assert free(rows.sort("id").union(rows).repartition(3)) == []
    assert free(rows.map_batches(**same).random_shuffle(seed=1)) == []
    assert free(mixed.random_shuffle(seed=1).map_batches(**same)) == [*above, "MapBatches(Same)"]


@pytest.mark.parametrize("way", ["random_shuffle", "sort"])
def test_a_slow_task_changes_no_order(way, cluster):
    """With a full budget, while the first of four tasks is slow, and all give many blocks."""

    def orders(slow_s):
        def wide(batch):
            time.sleep(slow_s * (batch["id"][0] == 1000))
            return {
                "id": batch["id"],
                "k": batch["id"] % 7,
                "pad": np.zeros((len(batch["id"]), 30)),
            }

        rows = data.range(30_000, override_num_blocks=4).map_batches(wide, batch_size=1000)
        given = rows.random_shuffle(seed=5) if way == "random_shuffle" else rows.sort("k")
        made = given.materialize()
        assert re.search(r"(Merge|Run): [1-9]\d* tasks", made.stats())
        return np.concatenate([batch["id"] for batch in made.iter_batches(batch_size=None)])

    context = data.DataContext.get_current().copy()
    context.target_max_block_size = 128 << 10
    limits = data.ExecutionResources(object_store_memory=1 << 20)
    context.execution_options.resource_limits = limits
    with data.DataContext.current(context):
        even, uneven = orders(0), orders(0.7)
    assert (even == uneven).all()
    if way == "sort":
        assert (even == np.argsort(np.arange(30_000) % 7, kind="stable")).all()


WITHOUT_PANDAS = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError("pandas is not installed")

sys.meta_path.insert(0, Hidden())
import pyarrow as pa, sheaf
from sheaf import data
sheaf.init(num_cpus=2, log_to_driver=False)
data.DataContext.get_current().small_input_bytes = 0
moments = pa.array([3, 1, None, 2] * 500, pa.timestamp("ns"))
rows = data.from_arrow([pa.table({"t": moments})] * 2).sort("t").materialize()
print(rows.count(), rows.skew()[0].top_keys[:1])
"""


def test_nanoseconds_are_sorted_without_pandas():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("4000 [(('1970-01-01 00:00:00.00000000"), done.stderr
