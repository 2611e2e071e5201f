# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Operators of expressions mean what they mean in Python, at the ends of types, too, or are a
BatchError that says "overflow" or names a value; readers of Parquet leave out no row that they keep.
DATA_SEED names the first of DATA_SEEDS seeds (30)."""

import decimal
import math
import operator
import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sheaf.data.datasource.parquet import ParquetDatasource
from sheaf.data.errors import BatchError
from sheaf.data.expressions import col, lit

FIRST = int(os.environ.get("DATA_SEED") or random.randrange(1 << 30))
WHOLE = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def ends(kind):
    info = np.iinfo(kind)
    return [int(info.min), int(info.max), int(info.max) - 1, 0, 1, 3]


def evaluated(expression, **columns):
    return expression.evaluate(pa.table(columns)).to_pylist()


@pytest.mark.parametrize("number", range(int(os.environ.get("DATA_SEEDS", "30"))))
def test_whole_numbers_as_in_python(number):
    print("DATA_SEED", FIRST + number)
    rng = random.Random(FIRST + number)
    one, other = rng.choice(WHOLE), rng.choice(WHOLE)
    a = [rng.choice(ends(one)) for _ in range(20)]
    b = [rng.choice(ends(other)) for _ in range(20)]
    columns = {"a": pa.array(a, one), "b": pa.array(b, other)}
    for act in COMPARISONS:
        assert evaluated(act(col("a"), col("b")), **columns) == list(map(act, a, b)), act
        float_ = rng.choice([1.5, -0.5, 2.0, 2.0**53, 2.0**63, 2.0**64, -(2.0**63), math.inf, 3.0])
        assert evaluated(act(col("a"), float_), **columns) == [act(x, float_) for x in a], float_
        assert evaluated(act(lit(float_), col("a")), **columns) == [act(float_, x) for x in a]
        whole = rng.choice(ends(other))
        assert evaluated(act(col("a"), whole), **columns) == [act(x, whole) for x in a], whole
    for act in ARITHMETIC:
        for x, y in zip(a, b, strict=True):
            row = {"a": pa.array([x], one), "b": pa.array([y], other)}
            try:
                found = evaluated(act(col("a"), col("b")), **row)
            except BatchError as error:
                assert "overflow" in str(error) or "not in range" in str(error) or y == 0
                limits = (0, 2**64) if one == other == "uint64" else (-(2**63), 2**63)
                steps = [x, y, *([] if y == 0 else [act(x, y)])]
                assert y == 0 or any(not limits[0] <= step < limits[1] for step in steps)
            else:
                assert found == [act(x, y)], (act, one, x, other, y)
    for act in (operator.add, operator.mul, operator.truediv):
        assert np.allclose(evaluated(act(col("a"), 1.5), **columns), [act(x, 1.5) for x in a])
    try:
        assert evaluated(-col("a"), **columns) == [-x for x in a]
        assert evaluated(col("a").abs(), **columns) == [abs(x) for x in a]
    except BatchError:
        assert one in ("int64", "uint64")


MEMBERS = [
    1,
    1.5,
    "1",
    "x",
    None,
    300,
    2**63,
    -1,
    0.0,
    decimal.Decimal("1"),
    decimal.Decimal("1.5"),
]
COLUMNS = {
    "int8": [1, 3, -1, None],
    "int64": [1, 3, 0, 2**62],
    "uint64": [1, 2**63, 0],
    "float64": [1.0, 1.5, -0.0, None],
    "string": ["1", "x", "y", None],
    "decimal": [decimal.Decimal("1.0"), decimal.Decimal("1.5"), None],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_members_of_mixed_lists(kind):
    rng = random.Random(len(kind))
    values = COLUMNS[kind]
    cells = pa.array(values, pa.decimal128(3, 1) if kind == "decimal" else kind)
    for _ in range(40):
        members = rng.sample(MEMBERS, rng.choice([2, 3, 5]))
        members = ["x", 7, *(one for one in members if one != "1" or kind == "string")]
        wanted = [value in members for value in values]
        wanted = [w or (v is None and None in members) for v, w in zip(values, wanted, strict=True)]
        assert evaluated(col("a").is_in(members), a=cells) == wanted, members
        assert evaluated(col("a").not_in(members), a=cells) == [not one for one in wanted]


def test_nothing_among_whole_numbers_is_a_fraction():
    numbers = pa.array([1, 2])
    assert evaluated(col("a").is_in([1.5]), a=numbers) == [False, False]
    assert evaluated(col("a").is_in([1.5, 2]), a=numbers) == [False, True]
    words = pa.array(["x", "y"]).dictionary_encode()
    assert evaluated(col("a").is_in(["x"]), a=words) == [True, False]


def test_constants_of_numpy_keep_nanoseconds():
    for value, kind in (
        (np.datetime64(1_500_000_001, "ns"), pa.timestamp("ns")),
        (np.timedelta64(1500, "ns"), pa.duration("ns")),
        (np.datetime64(5, "us"), pa.timestamp("us")),
    ):
        made = lit(value).evaluate(pa.table({"a": [1]}))
        assert made.type == kind and made[0] == pa.scalar(value)
    assert lit(np.datetime64("2020-01-01")).evaluate(pa.table({"a": [1]})).type == pa.date32()
    moments = pa.array([1500, 1501], pa.timestamp("ns"))
    equal = col("a") == np.datetime64(1500, "ns")
    assert evaluated(equal, a=moments) == [True, False]
    assert lit(2**63).evaluate(pa.table({"a": [1]})).to_pylist() == [2**63]
    with pytest.raises(ValueError, match="want a whole number from -2"):
        lit(2**64)


def test_what_is_too_large_says_so():
    with pytest.raises(
        BatchError, match=r"col\('a'\) \+ lit\(1\)\): overflow: whole numbers have 64"
    ):
        evaluated(col("a") + 1, a=pa.array([2**63 - 1]))


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1, 2, 2**60 + 1, -(2**53) - 1]),
        pa.array([1, 2**63, 7], pa.uint64()),
        pa.array([1, 2, 3], pa.int8()),
        pa.array([0.0, -0.0, 1.5, float("nan")]),
        pa.array(["1", "x"]),
        pa.array([1500, 1501], pa.timestamp("ns")),
    ],
    ids=lambda cells: str(cells.type),
)
def test_readers_of_parquet_keep_the_same_rows(cells, tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": cells, "n": range(len(cells))}), path, row_group_size=1)
    constants = [1, 1.5, 2.0**60, 0.0, -0.0, 2**63, 300, "1", np.datetime64(1500, "ns")]
    conditions = [act(col("a"), one) for act in COMPARISONS for one in constants]
    conditions += [col("a").is_in(list(one)) for one in ([1.5], [1, "x"], [0.0], [300, 1], ["1"])]
    table, checked = pq.read_table(path), 0
    for condition in conditions:
        try:
            wanted = table.filter(condition.evaluate(table)).column("n").to_pylist()
        except BatchError:
            continue
        source = ParquetDatasource(path)
        if source.supports_predicate(condition):
            source = source.with_predicate(condition)
            rows = [t for task in source.get_read_tasks(4) for t in task()]
            found = [
                n for t in rows for n in t.filter(condition.evaluate(t)).column("n").to_pylist()
            ]
            assert found == wanted, condition
            checked += 1
    assert checked >= 3
