# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Aggregates give the same however rows are spread over blocks, and what pandas gives."""

import decimal
import math
import pickle

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
from sheaf import cloudpickle  # noqa: E402
from sheaf.data import aggregate as agg  # noqa: E402
from sheaf.data.block import concat  # noqa: E402
from sheaf.data.errors import BatchError, ColumnNotFoundError  # noqa: E402

RANDOM = np.random.default_rng(5)
ROWS = 300
TABLE = pa.table(
    {
        "k": pa.array(RANDOM.integers(0, 7, ROWS)),
        "s": pa.array([None if n % 11 == 0 else "ab"[n % 2] for n in range(ROWS)]),
        "x": pa.array(RANDOM.normal(1e6, 1, ROWS), mask=RANDOM.random(ROWS) < 0.1),
        "i": pa.array(RANDOM.integers(-5, 5, ROWS), mask=RANDOM.random(ROWS) < 0.1),
    }
)


def run(keys, *aggregates, table=TABLE, blocks=4):
    """Over several blocks, each step with copies, as processes have them."""
    aggregates = pickle.loads(cloudpickle.dumps(aggregates))
    cuts = np.linspace(0, table.num_rows, blocks + 1).astype(int)
    states = [agg.partial(table.slice(a, b - a), keys, aggregates) for a, b in zip(cuts, cuts[1:])]
    half = agg.merge(concat(states[:2]), keys, aggregates)
    whole = agg.merge(concat([half, *states[2:]]), keys, aggregates)
    return agg.finish(whole, keys, aggregates)


class Longest(agg.AggregateFnV2):
    def __init__(self, on):
        super().__init__(f"longest({on})", str, on=on, ignore_nulls=True)

    def aggregate_block(self, block):
        return max(block.column("s").to_pylist(), key=len)

    def combine(self, a, b):
        return max(a, b, key=len)


PANDAS = {
    "count()": (agg.Count(), lambda f: len(f)),
    "count(x)": (agg.Count("x", ignore_nulls=True), lambda f: f["x"].count()),
    "sum(i)": (agg.Sum("i"), lambda f: f["i"].sum(min_count=1)),
    "min(x)": (agg.Min("x"), lambda f: f["x"].min()),
    "max(x)": (agg.Max("x"), lambda f: f["x"].max()),
    "abs_max(i)": (agg.AbsMax("i"), lambda f: f["i"].abs().max()),
    "mean(x)": (agg.Mean("x"), lambda f: f["x"].mean()),
    "std(x)": (agg.Std("x"), lambda f: f["x"].std()),
    "p": (agg.Std("x", ddof=0, alias_name="p"), lambda f: f["x"].std(ddof=0)),
    "quantile(x)": (agg.Quantile("x", 0.3), lambda f: f["x"].quantile(0.3)),
    "count_distinct(i)": (agg.CountDistinct("i"), lambda f: f["i"].nunique()),
    "missing_pct(x)": (agg.MissingValuePercentage("x"), lambda f: 100 * f["x"].isna().mean()),
    "zero_pct(i)": (agg.ZeroPercentage("i"), lambda f: 100 * (f["i"].dropna() == 0).mean()),
}


@pytest.mark.parametrize("keys", [["k"], ["k", "s"], []], ids=str)
def test_as_pandas_has_it(keys):
    pytest.importorskip("pandas", reason="not installed: pip install pandas")
    found = run(keys, *(one for one, _ in PANDAS.values()))
    assert found.column_names == [*keys, *PANDAS]
    frame = TABLE.to_pandas()
    groups = dict(iter(frame.groupby(keys, dropna=False))) if keys else {(): frame}
    assert found.num_rows == len(groups)

    def key_of(values):
        return tuple(None if value != value or value is None else value for value in values)

    groups = {key_of(key): frame for key, frame in groups.items()}
    for row in found.to_pylist():
        frame = groups[key_of([row[key] for key in keys])]
        for name, (_, function) in PANDAS.items():
            want = function(frame)
            if want != want:  # NaN is what pandas says of too few values.
                one_value = name == "std(x)" and len(frame["x"].dropna()) == 1
                assert math.isnan(row[name]) if one_value else row[name] is None, name
            else:
                assert math.isclose(row[name], want, rel_tol=1e-9), name


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint8", "uint64", "float32", "bool"])
@pytest.mark.parametrize("seed", range(3))
def test_extreme_numbers_as_numpy_has_them(kind, seed):
    """Sums of integers would wrap in both."""
    random = np.random.default_rng([seed, len(kind)])
    if kind == "bool":
        values = random.random(60) < [0, 0.5, 1][seed]
    elif kind == "float32":
        values = random.normal(size=60).astype(kind)
    else:
        info = np.iinfo(kind)
        values = random.choice(np.array([info.min, info.max, info.max - 1, 1, 0], kind), 60)
    floats = values.astype(float)
    found = run(
        [],
        *(one("x") for one in (agg.Min, agg.Max, agg.AbsMax, agg.Mean, agg.Std, agg.Quantile)),
        table=pa.table({"x": values}),
    ).to_pylist()[0]
    (least, most, absolute), close = list(found.values())[:3], list(found.values())[3:]
    assert [least, most] == [values.min(), values.max()]
    assert isinstance(least, type(values[0].item())) and isinstance(most, type(values[0].item()))
    assert absolute == max(abs(value.item()) for value in values)
    wanted = [floats.mean(), floats.std(ddof=1), np.quantile(floats, 0.5)]
    assert np.allclose(close, wanted, rtol=1e-12, atol=0)


def test_nan_is_a_value():
    table = pa.table({"x": [1.0, float("nan"), 3.0, None], "k": [1, 1, 2, 2]})
    found = run(["k"], agg.Mean("x"), agg.Std("x", ddof=0), agg.Quantile("x"), table=table)
    first, second = found.to_pylist()
    assert all(math.isnan(value) for name, value in first.items() if name != "k")
    assert list(second.values()) == [2, 3.0, 0.0, 3.0]


def test_decimals_zeros_and_dictionaries():
    cents = pa.array([decimal.Decimal(value) for value in ("1.5", "2.5", "4")])
    words = pa.DictionaryArray.from_arrays([0, 1, 2], ["a", "a", "b"])
    table = pa.table({"d": cents, "z": [0.0, -0.0, 1.0], "w": words})
    aggregates = [agg.Quantile("d"), agg.Mean("d"), agg.CountDistinct("z"), agg.CountDistinct("w")]
    assert list(run([], *aggregates, table=table).to_pylist()[0].values()) == [2.5, 8 / 3, 2, 2]
    counted = run([], agg.Unique("z"), agg.ValueCounter("w"), table=table).to_pylist()[0]
    assert list(counted.values()) == [[0.0, 1.0], {"values": ["a", "b"], "counts": [2, 1]}]


def test_views_of_text():
    table = pa.table({"k": [1, 1, 2], "v": pa.array(["a", None, "b"], pa.string_view())})
    found = run(["k"], agg.AsList("v"), agg.Max("v"), agg.CountDistinct("v"), table=table)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (1, ["a", None], "a", 1),
        (2, ["b"], "b", 1),
    ]


def test_lists_and_values():
    table = pa.table({"k": [1, 2, 1, 1, 2, 1], "v": ["a", "b", "a", None, "c", "d"]})
    found = run(
        ["k"],
        agg.AsList("v"),
        agg.Unique("v"),
        agg.Unique("v", ignore_nulls=True, alias_name="u"),
        agg.ValueCounter("v"),
        agg.AsList("v", ignore_nulls=True, alias_name="l"),
        table=table,
    )
    assert found.to_pylist() == [
        {
            "k": 1,
            "list(v)": ["a", "a", None, "d"],
            "unique(v)": ["a", None, "d"],
            "u": ["a", "d"],
            "value_counter(v)": {"values": ["a", "d"], "counts": [2, 1]},
            "l": ["a", "a", "d"],
        },
        {
            "k": 2,
            "list(v)": ["b", "c"],
            "unique(v)": ["b", "c"],
            "u": ["b", "c"],
            "value_counter(v)": {"values": ["b", "c"], "counts": [1, 1]},
            "l": ["b", "c"],
        },
    ]
    assert run([], agg.ApproximateQuantile("k", [0, 0.5, 1]), table=table).to_pylist() == [
        {"approx_quantile(k)": [1.0, 1.0, 2.0]}
    ]


def test_groups_come_in_the_order_of_their_first_rows():
    keys = [["b", 2], ["a", 1], ["b", 1], ["a", 1], ["b", 2]] * 500
    table = pa.table({"s": [s for s, _ in keys], "k": [k for _, k in keys]})
    found = run(["s", "k"], agg.Count(), table=table).to_pydict()
    assert found == {"s": ["b", "a", "b"], "k": [2, 1, 1], "count()": [1000, 1000, 500]}


def test_functions_of_users():
    total = agg.AggregateFn(
        init=lambda key: 0,
        merge=lambda a, b: a + b,
        name="total",
        accumulate_row=lambda a, row: a + row["k"],
        finalize=lambda a: -a,
    )
    rows = agg.AggregateFn(
        lambda key: 0,
        lambda a, b: a + b,
        "rows",
        accumulate_block=lambda a, block: a + block.num_rows,
    )
    table = pa.table({"k": [1, 2, 1], "s": ["a", "bc", "def"]})
    assert run(["k"], total, rows, Longest("s"), table=table).to_pylist() == [
        {"k": 1, "total": -2, "rows": 2, "longest(s)": "def"},
        {"k": 2, "total": -2, "rows": 1, "longest(s)": "bc"},
    ]
    with pytest.raises(ValueError, match="one of accumulate_row"):
        agg.AggregateFn(lambda key: 0, max, "x")


def test_keys_that_are_null_nan_and_minus_zero_are_one_group_each():
    table = pa.table({"k": [None, float("nan"), 0.0, -0.0, float("nan"), None]})
    assert run(["k"], agg.Count(), table=table).column("count()").to_pylist() == [2, 2, 2]


def test_no_values_are_null_and_nulls_count_when_they_shall():
    table = pa.table({"x": pa.array([None, None], pa.float64()), "y": [1.0, None]})
    found = run(
        [],
        agg.Sum("x"),
        agg.Mean("x"),
        agg.Std("x"),
        agg.Min("x"),
        agg.Quantile("x"),
        *(one("y", ignore_nulls=False) for one in (agg.Sum, agg.Mean, agg.Max, agg.Std)),
        table=table,
        blocks=2,
    )
    assert set(found.to_pylist()[0].values()) == {None}


def test_columns_that_have_no_such_aggregate():
    with pytest.raises(
        BatchError, match=r"sum\(s\): column 's' is string, which has no such aggregate"
    ):
        agg.Sum("s").partial(TABLE, ["k"])
    for one in (agg.Mean("s"), agg.Std("s"), agg.Quantile("s")):
        with pytest.raises(BatchError, match="column 's' is string, which has no such aggregate"):
            one.partial(TABLE, [])
    with pytest.raises(ColumnNotFoundError, match="groupby: no column 'kk'; did you mean 'k'"):
        agg.Sum("x").partial(TABLE, ["kk"])
    with pytest.raises(ColumnNotFoundError, match="aggregate: no column 'xx'"):
        agg.Sum("xx").partial(TABLE, [])
    with pytest.raises(BatchError, match="column 'l' is list.*cannot be grouped"):
        agg.Count().partial(pa.table({"l": [[1]]}), ["l"])
    with pytest.raises(ValueError, match="q=2"):
        agg.Quantile("x", 2)


def test_one_aggregate_alone():
    one = agg.Sum("i")
    states = one.merge(concat([one.partial(TABLE, ["k"])] * 2), ["k"])
    assert one.finish(states).column_names == ["k", "sum(i)"]
    assert one.finish(one.partial(TABLE.slice(0, 0), ["k"])).num_rows == 0
