# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Keys of random types, which differ between blocks and sides: groups, sorts and joins give what
Python's own equality gives. DATA_SEED names the first of DATA_SEEDS seeds (12)."""

import collections
import datetime
import decimal
import os
import random

import numpy as np
import pyarrow as pa
import pytest
from sheaf import data
from sheaf.data.errors import BatchError, SchemaMismatchError

pytestmark = pytest.mark.usefixtures("node")
FIRST = int(os.environ.get("DATA_SEED") or random.randrange(1 << 30))
DAY = datetime.datetime(2020, 1, 1)
D = decimal.Decimal


def coded(kind):
    return lambda values: pa.array(values, kind).dictionary_encode()


def coded_twice(values):
    """A dictionary that holds each value twice, and one that nothing names."""
    known = sorted({value for value in values if value is not None})
    places = [
        None if v is None else known.index(v) + len(known) * (n % 2) for n, v in enumerate(values)
    ]
    return pa.DictionaryArray.from_arrays(
        pa.array(places, pa.int8()), pa.array([*known, *known, "?"])
    )


def of(kind):
    return lambda values: pa.array(values, kind)


# Values, and the forms that they may have in a block.
FORMS = {
    "decimals": (
        [D("1.5"), D("0.3"), D("0"), D("-7"), D("1.1")],
        [of(pa.decimal128(5, 2)), of(pa.decimal128(6, 3)), of(pa.decimal256(40, 1))],
    ),
    "wholes": (
        [0, 1, -1, 7, 100],
        [of(pa.int8()), of(pa.int64()), of(pa.float64()), of(pa.decimal128(9, 3)), of(pa.int16())],
    ),
    "floats": (
        [0.0, -0.0, 1.5, float("nan"), -2.25],
        [
            of(pa.float64()),
            of(pa.float32()),
            lambda v: pa.array(v, pa.float32()).cast(pa.float16()),
        ],
    ),
    "texts": (
        ["a", "b", "", "zz", "é"],
        [
            of(pa.string()),
            of(pa.large_string()),
            of(pa.string_view()),
            coded(pa.string()),
            coded_twice,
        ],
    ),
    "moments": (
        [DAY, DAY + datetime.timedelta(seconds=1), DAY - datetime.timedelta(days=9)],
        [of(pa.timestamp("s")), of(pa.timestamp("us")), of(pa.timestamp("ns"))],
    ),
    "days": ([DAY.date(), datetime.date(1960, 2, 3)], [of(pa.date32()), of(pa.date64())]),
    "spans": (
        [datetime.timedelta(seconds=n) for n in (0, 1, -5)],
        [of(pa.duration("s")), of(pa.duration("ns"))],
    ),
    "flags": ([True, False], [of(pa.bool_()), coded(pa.bool_())]),
}


def same(value):
    """Equal for equal keys."""
    return "nan" if value != value else value + 0.0 if isinstance(value, float) else value


def table(rng, values, forms, name):
    """Some blocks of rows, each with its own form of the key, and the rows as Python has them."""
    blocks, rows = [], []
    for _ in range(rng.randrange(1, 4)):
        keys = [rng.choice([None, *values]) for _ in range(rng.choice([1, 5, 30]))]
        numbers = range(len(rows), len(rows) + len(keys))
        blocks.append(pa.table({"k": rng.choice(forms)(keys), name: list(numbers)}))
        rows += [(None if key is None else same(key), number) for key, number in zip(keys, numbers)]
    return data.from_arrow(blocks), rows


@pytest.mark.parametrize("number", range(int(os.environ.get("DATA_SEEDS", "12"))))
def test_keys_of_many_types(number):
    print("DATA_SEED", FIRST + number)
    rng = random.Random(FIRST + number)
    values, forms = FORMS[list(FORMS)[number % len(FORMS)]]
    (left, rows), (right, others) = (table(rng, values, forms, name) for name in "ab")
    parts = rng.choice([1, 3, 8])

    wanted = {}
    for key, row in rows:
        wanted.setdefault(key, []).append(row)
    sums = left.groupby("k", num_partitions=parts).sum("a").take_all()
    assert len(sums) == len(wanted)
    assert {same(row["k"]): row["sum(a)"] for row in sums} == {k: sum(v) for k, v in wanted.items()}
    groups = left.groupby("k", num_partitions=parts).map_groups(
        lambda g: {"rows": [sorted(g["a"])]}
    )
    assert sorted(row["rows"] for row in groups.take_all()) == sorted(wanted.values())

    order = [row["a"] for row in left.sort("k").take_all()]
    ranks = [{row: key for key, row in rows}[row] for row in order]
    known = [key for key in ranks if key not in (None, "nan")]
    assert known == sorted(known) and ranks[len(known) :].count(None) == ranks.count(None)
    assert sorted(order) == [row for _, row in rows]

    pairs = [
        (key, a, b) for key, a in rows for other, b in others if key is not None and key == other
    ]
    for kind, more in {
        "inner": [],
        "left_outer": [
            (k, a, None) for k, a in rows if (k, a) not in {(k, a) for k, a, _ in pairs}
        ],
        "right_outer": [
            (k, None, b) for k, b in others if (k, b) not in {(k, b) for k, _, b in pairs}
        ],
    }.items():
        joined = left.join(right, kind, parts, on="k").take_all()
        told = [(None if r["k"] is None else same(r["k"]), r["a"], r["b"]) for r in joined]
        assert collections.Counter(told) == collections.Counter([*pairs, *more]), kind


def rows_of(dataset):
    return sorted((tuple(row.values()) for row in dataset.take_all()), key=str)


def test_unsigned_keys_beside_signed_ones():
    left = data.from_arrow(
        pa.table({"k": pa.array([1, 2**63, 2**64 - 1], pa.uint64()), "a": [1, 2, 3]})
    )
    right = data.from_arrow(pa.table({"k": [1, -1, -(2**63)], "b": [1, 2, 3]}))
    assert rows_of(left.join(right, "inner", 2, on="k")) == [(1, 1, 1)]
    assert rows_of(left.join(right, "left_semi", 2, on="k")) == [(1, 1)]
    assert rows_of(left.join(right, "right_anti", 2, on="k")) == [(-1, 2), (-(2**63), 3)]
    assert rows_of(left.join(right, "right_outer", 2, on="k")) == [
        (1, 1, 1),
        (None, -1, 2),
        (None, -(2**63), 3),
    ]
    with pytest.raises(
        SchemaMismatchError, match="column 'k' is uint64 in the left side and int64"
    ):
        left.join(right, "left_outer", 2, on="k").take_all()


@pytest.mark.parametrize("key", [[1, 2], {"a": 1}, np.zeros((2, 2))])
@pytest.mark.parametrize("parts", [1, 4])
def test_keys_that_cannot_be_joined_by_are_named(key, parts):
    left, right = data.from_items([{"k": 1, "list": key}]), data.from_items([{"list": key, "b": 1}])
    with pytest.raises(BatchError, match="join: column 'list' of the left side is .*: join by"):
        left.join(right, "inner", parts, on="list").take_all()


def test_no_column_of_a_join_is_lost():
    def joined(left, right, kind="inner", **options):
        rows = [data.from_items([row]) for row in (left, right)]
        return rows[0].join(rows[1], kind, 2, **options).take_all()

    by = {"on": "id", "right_on": "rid"}
    with pytest.raises(
        ValueError, match="two columns 'id': want another left_suffix or right_suffix"
    ):
        joined({"id": 1, "x": 1}, {"rid": 1, "id": 7}, **by)
    suffixed = joined({"id": 1, "x": 1}, {"rid": 1, "id": 7}, right_suffix="_r", **by)
    assert suffixed == [{"id": 1, "x": 1, "id_r": 7}]
    assert joined({"id": 1, "rid": 5}, {"rid": 1}, **by) == [{"id": 1, "rid": 5}]
    with pytest.raises(ValueError, match="two columns 'x_r'"):
        joined({"k": 1, "x": 1, "x_r": 2}, {"k": 1, "x": 3}, on="k", right_suffix="_r")
    with pytest.raises(ValueError, match="two columns 'rid'"):
        joined({"id": 1, "rid": 5}, {"rid": 1, "y": 7}, "right_outer", **by)
    assert joined({"id": 1, "x": 5}, {"rid": 2, "y": 7}, "right_outer", **by) == [
        {"x": None, "rid": 2, "y": 7}
    ]


def test_long_tensors_are_keys_of_their_own():
    arrays = [np.zeros(2000) for _ in range(3)]
    arrays[1][1000], arrays[2][0] = 5, -0.0
    rows = data.from_items([{"k": array, "i": i} for i, array in enumerate(arrays)])
    groups = rows.groupby("k", num_partitions=3).map_groups(lambda g: {"n": [len(g["i"])]})
    assert sorted(row["n"] for row in groups.take_all()) == [1, 2]


def test_dictionaries_that_are_no_categories_of_pandas_become_some():
    for words, values in ((["a", "a", "b"], ["a", "a", "b"]), (["a", None], ["a", None])):
        column = pa.DictionaryArray.from_arrays(list(range(len(words))), words)
        frame = data.from_arrow(pa.table({"w": column})).to_pandas()
        assert [None if one != one else one for one in frame["w"]] == values
        assert frame["w"].cat.categories.is_unique


@pytest.mark.parametrize("parts", [1, 3])
def test_views_and_runs_go_through_all_exchanges(parts):
    words = pa.array(["b", "a", "b", None], pa.string_view())
    runs = pa.RunEndEncodedArray.from_arrays([2, 4], [7, 8])
    rows = data.from_arrow(pa.table({"w": words, "r": runs, "n": range(4)}))
    groups = rows.groupby("w", num_partitions=parts).map_groups(lambda g: {"n": [sorted(g["n"])]})
    assert sorted(row["n"] for row in groups.take_all()) == [[0, 2], [1], [3]]
    sums = rows.groupby("r", num_partitions=parts).sum("n").take_all()
    assert sorted((row["r"], row["sum(n)"]) for row in sums) == [(7, 1), (8, 5)]
    for key in ("w", "n"):
        joined = rows.join(rows, "inner", parts, on=key, right_suffix="_")
        assert joined.count() == {"w": 5, "n": 4}[key]
    assert [row["n"] for row in rows.sort(["w", "n"]).take_all()] == [1, 0, 2, 3]
    assert [row["n"] for row in rows.random_shuffle(seed=1).sort("n").take_all()] == [0, 1, 2, 3]


def test_intervals_are_groups_of_map_groups_alone():
    spans = pa.array([pa.MonthDayNano([1, 2, 3]), None, pa.MonthDayNano([1, 2, 3])])
    rows = data.from_arrow([pa.table({"k": spans.slice(n, 1), "a": [n]}) for n in range(3)])
    groups = rows.groupby("k", num_partitions=3).map_groups(
        lambda g: pa.table({"n": [g.num_rows]}), batch_format="pyarrow"
    )
    assert sorted(row["n"] for row in groups.take_all()) == [1, 2]
    with pytest.raises(BatchError, match="column 'k' is month_day_nano_interval, .* add_column"):
        rows.groupby("k").count().take_all()
    with pytest.raises(TypeError, match="'k' is month_day_nano_interval; sort by .* add_column"):
        rows.sort("k").take_all()
