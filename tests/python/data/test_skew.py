# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Partitions that are far larger than others: several tasks share them, and results are those of
pandas, row by row."""

import datetime
import decimal
import re

import numpy as np
import pytest
import sheaf
from sheaf import data

pa = pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")
pd = pytest.importorskip("pandas", reason="not installed: pip install pandas")

from sheaf.data import errors, tasks  # noqa: E402
from sheaf.data.exchanges import join, runs, skew, sort  # noqa: E402
from sheaf.data.operators import Bundle  # noqa: E402
from sheaf.data.task_context import TaskContext  # noqa: E402

SEEDS = range(6)
SMALL_BYTES = 2000  # What a reducer gets, and what a large partition has, at least.


def bundles_of(function, works):
    """What tasks make of works, as the executor gets it."""
    made = []
    for number, work in enumerate(works):
        given = [bundle.block for bundle in work.bundles]
        cuts = [(bundle.start, bundle.stop) for bundle in work.bundles]
        where = TaskContext(number, "test", {}, 1)
        for header in tasks.run(function, where, cuts, work.payload, given):
            made.append(Bundle(header.table, 0, header.num_rows, header.size_bytes, header))
    return made


def inputs_of(tables):
    return [
        Bundle(t, 0, t.num_rows, t.nbytes, tasks.Header(t.num_rows, t.nbytes, t.schema))
        for t in tables
    ]


def exchanged(method, sides, in_rounds):
    """The works that reducers get, and what they make of them, table by table; `in_rounds` as if
    there were more than the store holds."""
    context = data.DataContext().copy()
    context.small_input_bytes = 0
    context.skewed_partition_factor, context.skewed_partition_bytes = 2.0, SMALL_BYTES
    method = method.begin([None] * len(sides), 2, context, 1 << 30)
    method.most_bytes = SMALL_BYTES
    given = [inputs_of(tables) for tables in sides]
    everything = tasks.MapFunction(target_bytes=1 << 62)
    if method.samples and in_rounds:
        some = [given[0][at : at + 3] for at in range(0, len(given[0]), 3)]
        works = [work for three in some for work in method.arrange_runs([three])]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runs, "_PART_BYTES", 128)
            given = [bundles_of(tasks.SliceFunction(method), works)]
        assert not method.arrange_samples(given) and not method.arrange_cuts([[]])
        given = [[]]
    elif method.samples:
        sampled = bundles_of(tasks.SliceFunction(method), method.arrange_samples(given))
        cut = tasks.PartitionFunction(everything, method, 1 << 62)
        given = [bundles_of(cut, method.arrange_cuts([sampled]))]
    else:
        given = [
            [
                made
                for bundle in port
                for made in bundles_of(
                    tasks.PartitionFunction(everything, method, 1 << 62, side),
                    [sort.Work((bundle,))],
                )
            ]
            for side, port in enumerate(given)
        ]
    if in_rounds and not method.samples:
        merge = tasks.MergeFunction(method)
        given = [
            [
                made
                for at in range(0, len(port), 3)
                for made in bundles_of(merge, method.arrange_round([port[at : at + 3]]))
            ]
            for port in given
        ]
    works = method.arrange(given)
    reduce = tasks.ReduceFunction(method, everything)
    return method, works, [bundle.block for bundle in bundles_of(reduce, works)]


def tables_of(frame, count):
    cuts = np.linspace(0, len(frame), count + 1).astype(int)
    return [
        pa.Table.from_pandas(frame.iloc[a:b], preserve_index=False) for a, b in zip(cuts, cuts[1:])
    ]


# Sorts.


def keys_of(random, rows, heavy):
    """Keys of which `heavy` has about half, and with it NULL and NaN."""
    keys = pd.Series(random.integers(0, 300, rows).astype(float))
    keys[random.random(rows) < 0.5] = heavy
    keys[random.random(rows) < 0.02] = np.nan
    return keys


@pytest.mark.parametrize("in_rounds", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_sort_shares_a_heavy_key_and_keeps_the_order_of_equal_rows(seed, in_rounds):
    random = np.random.default_rng(seed)
    rows = 5000
    frame = pd.DataFrame(
        {
            "k": keys_of(random, rows, [0.0, 299.0, 150.0, np.nan][seed % 4]),
            "l": random.integers(0, 2, rows),
            "row": np.arange(rows),
        }
    )
    keys = [("k", bool(seed & 1))] + [("l", bool(seed & 2))] * (seed % 3 == 0)
    method = sort.Sort(keys=tuple(keys))
    _, works, made = exchanged(method, [tables_of(frame, 7)], in_rounds)
    names, rises = [name for name, _ in keys], [not falls for _, falls in keys]
    wanted = frame.sort_values(names, ascending=rises, kind="stable", na_position="last")
    assert pa.concat_tables(made)["row"].to_pylist() == wanted["row"].tolist()
    assert max(work.size_bytes for work in works) < 2 * SMALL_BYTES + frame.memory_usage().sum() / 9


@pytest.mark.parametrize("key", [None, float("nan"), 0.0, "text", True])
def test_a_sort_of_one_key_alone_is_shared(key):
    values = pa.array([key] * 3000) if key != 0.0 else pa.array([0.0, -0.0] * 1500)
    tables = [pa.table({"k": values, "row": np.arange(3000) + 3000 * n}) for n in range(3)]
    _, works, made = exchanged(sort.Sort(keys=(("k", False),)), [tables], False)
    assert pa.concat_tables(made)["row"].to_pylist() == list(range(9000))
    assert len(works) >= 9000 * 8 // SMALL_BYTES


@pytest.mark.parametrize("in_rounds", [False, True])
@pytest.mark.parametrize("falls", [False, True])
def test_a_sort_shares_a_range_of_wide_rows_by_finer_ends(falls, in_rounds):
    random = np.random.default_rng(5)
    keys = random.permutation(20_000)
    wide = ["w" * 300 if 5000 <= key < 5200 else "" for key in keys]
    frame = pd.DataFrame({"k": keys, "w": wide})
    ordered = sort.Sort(keys=(("k", falls),))
    method, works, made = exchanged(ordered, [tables_of(frame, 5)], in_rounds)
    found = pa.concat_tables(made)
    wanted = frame.sort_values("k", ascending=not falls)
    assert found["k"].to_pylist() == wanted["k"].tolist()
    assert found["w"].to_pylist() == wanted["w"].tolist()
    if in_rounds:  # Partitions have about as many bytes.
        assert method.counts.sizes.max() < 2 * SMALL_BYTES
    else:
        assert method.counts.split and any(len(work.payload) == 2 for work in works)
        longest = max(table.nbytes for table in made)
        assert longest < method.counts.sizes.max() / 4


@pytest.mark.parametrize("in_rounds", [False, True])
@pytest.mark.parametrize("falls", [False, True])
def test_bounds_of_the_caller_stay_the_borders_of_blocks(falls, in_rounds):
    frame = pd.DataFrame({"k": np.full(5000, 7), "l": np.arange(5000) % 13})
    frame.loc[:9, "k"] = 900
    keys = (("k", falls), ("l", False))
    _, works, made = exchanged(
        sort.Sort(keys=keys, bounds=(-1, 8, 100)), [tables_of(frame, 4)], in_rounds
    )
    wanted = [0, 4990, 0, 10]
    assert [table.num_rows for table in made] == (wanted[::-1] if falls else wanted)
    assert all(table["l"].to_pylist() == sorted(table["l"].to_pylist()) for table in made)


def test_a_run_wants_the_key_in_each_of_its_blocks_that_has_rows():
    tables = [pa.table({"k": [2, 1]}), pa.table({}), pa.table({"k": [3, 0]})]
    method = sort.Sort(keys=(("k", False),))
    assert pa.concat_tables(exchanged(method, [tables], True)[2])["k"].to_pylist() == [0, 1, 2, 3]
    with pytest.raises(errors.ColumnNotFoundError, match="no column 'k'"):
        exchanged(method, [[*tables, pa.table({"x": [1]})]], True)


KINDS = {
    "int": lambda n: n - 20,
    "float": lambda n: [n / 4, -0.0, 0.0, float("nan"), float("-inf")][n % 5],
    "text": lambda n: ["", "a" * (n % 9), f"z{n}", "\0", "é"][n % 5],
    "bool": lambda n: n % 2 == 0,
    "bytes": lambda n: bytes([n % 7, n % 3]),
    "decimal": lambda n: decimal.Decimal(n % 11) / 4,
    "time": lambda n: datetime.datetime(2026, 1, 1 + n % 28, n % 24),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_runs_are_sorted_as_what_is_in_memory(kind, seed):
    """Keys of all types, with NULL, of blocks of any size, of which some have no row or only
    NULL: rows, and the order of equal ones, are the same."""
    random = np.random.default_rng(seed)
    tables, rows = [], 0
    for size in random.choice([0, 1, 5, 300, 900], 9):
        many = random.choice([2, 40])
        keys = [KINDS[kind](int(n)) if n else None for n in random.integers(0, many, size)]
        if random.random() < 0.2:
            keys = [None] * size
        given = {"k": keys, "l": random.integers(0, 3, size), "row": np.arange(rows, rows + size)}
        table = pa.table(given)
        if seed % 2 and pa.types.is_string(table["k"].type):
            table = table.set_column(0, "k", table["k"].dictionary_encode())
        tables, rows = [*tables, table], rows + size
    if not rows:
        return
    keys = [("k", bool(seed & 1)), ("l", bool(seed & 2))][: 1 + (seed > 2)]
    in_order = sort.Sort(keys=tuple(keys))
    (wanted, found) = (
        pa.concat_tables(exchanged(in_order, [tables], in_rounds)[2], promote_options="permissive")
        for in_rounds in (False, True)
    )
    assert found["row"].to_pylist() == wanted["row"].to_pylist()
    assert repr(found["k"].to_pylist()) == repr(wanted["k"].to_pylist())
    assert sorted(found["row"].to_pylist()) == list(range(rows))


# Joins.

HOW = {"inner": "inner", "left_outer": "left", "right_outer": "right", "full_outer": "outer"}


def sides_of(seed):
    """Two frames, of which one has a heavy key, or both have."""
    random = np.random.default_rng(seed)
    left = pd.DataFrame({"k": random.integers(0, 200, 600), "a": np.arange(600)})
    right = pd.DataFrame({"k": random.integers(100, 300, 600), "b": np.arange(600)})
    if seed % 3 != 1:
        left.loc[random.random(600) < 0.6, "k"] = 150
    if seed % 3 != 0:
        right.loc[random.random(600) < 0.6, "k"] = 150 + seed % 2 * 149
    return left, right


def joined_by_pandas(left, right, kind):
    if kind in HOW:
        return left.merge(right, on="k", how=HOW[kind])
    one, other = (left, right) if kind.startswith("left") else (right, left)
    return one[one["k"].isin(other["k"]) == kind.endswith("semi")]


def rows_of(frame):
    values = frame.astype(float).fillna(-1).to_numpy()
    return values[np.lexsort(values.T)].tobytes()


@pytest.mark.parametrize("in_rounds", [False, True])
@pytest.mark.parametrize("kind", join.KINDS)
def test_a_join_slices_the_side_with_the_heavy_key(kind, in_rounds):
    split = 0
    for seed in SEEDS:
        left, right = sides_of(seed)
        method = join.Join(16, kind=kind, left=("k",), right=("k",))
        sides = [tables_of(left, 4), tables_of(right, 5)]
        method, works, made = exchanged(method, sides, in_rounds)
        found = pa.concat_tables(made, promote_options="permissive").to_pandas()
        wanted = joined_by_pandas(left, right, kind)
        assert rows_of(found[wanted.columns]) == rows_of(wanted), seed
        assert len(works) >= 16 + len(method.counts.split)
        split += len(method.counts.split)
    assert bool(split) == (kind != "full_outer")  # There each side needs all of the other.


def test_a_partition_that_cannot_be_shared_is_warned_of(caplog):
    left, right = sides_of(0)
    for kind in ("full_outer", "left_outer"):
        method = join.Join(16, kind=kind, left=("k",), right=("k",))
        exchanged(method, [tables_of(left, 4), tables_of(right, 4)], False)
    assert re.findall(r"one of 16 partitions has", caplog.text) == ["one of 16 partitions has"]


def test_bundles_are_shared_in_parts_of_equal_bytes():
    for seed in range(50):
        random = np.random.default_rng(seed)
        bundles = [
            Bundle(n, 0, int(rows), int(rows * random.integers(0, 9)))
            for n, rows in enumerate(random.integers(0, 100, 8))
        ]
        most = int(random.integers(1, 600))
        parts = skew.shares(bundles, most)
        rows = [(b.block, row) for part in parts for b in part for row in range(b.start, b.stop)]
        assert rows == [(b.block, row) for b in bundles for row in range(b.num_rows)]
        assert all(part and all(b.num_rows for b in part) for part in parts)
        assert max(sum(b.size_bytes for b in part) for part in parts) <= most + 20 * 8


# In a cluster.


@pytest.fixture(scope="module")
def cluster():
    sheaf.init(num_cpus=2, object_store_memory=256 << 20, log_to_driver=False)
    yield
    sheaf.shutdown()


def heavy(batch):
    """Rows of 100 bytes, of which six in ten have key 7."""
    ids = batch["id"]
    k = np.where(ids % 10 < 6, 7, ids % 1000)
    return {"k": k, "id": ids, **{f"c{n}": ids + n for n in range(10)}}


@pytest.mark.parametrize("budget", [2 << 20, 64 << 20])
def test_tasks_share_heavy_partitions(cluster, budget):
    context = data.DataContext.get_current().copy()
    context.skewed_partition_bytes, context.small_input_bytes = 1 << 20, 0
    context.execution_options.resource_limits = data.ExecutionResources(object_store_memory=budget)
    context.execution_options.preserve_order = True
    count = 300_000 if budget > 8 << 20 else 60_000
    with data.DataContext.current(context):
        rows = data.range(count, override_num_blocks=12).map_batches(heavy, batch_size=None)
        few = data.range(1000, override_num_blocks=2).map_batches(
            lambda b: {"k": b["id"], "v": b["id"] * 3}
        )
        in_order = rows.sort("k").materialize()
        joined = rows.join(few, "inner", 8, on=("k",)).materialize()
    ids = np.arange(count)
    keys = np.where(ids % 10 < 6, 7, ids % 1000)
    found = in_order.select_columns(["k", "id", "c9"]).to_pandas()
    assert (found["id"].to_numpy() == np.argsort(keys, kind="stable")).all()
    assert (found["c9"] == found["id"] + 9).all()
    assert joined.count() == count and joined.sum("id") == ids.sum()
    assert joined.sum("v") == 3 * keys.sum()
    for made in (in_order, joined):
        (told,) = made.skew()
        assert told.split >= 1 and "several tasks shared: 1" in str(told)
        assert bool(re.search(r"(Merge|Run): [1-9]\d* tasks", made.stats())) == (budget == 2 << 20)
