# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Random tables, cut into random blocks: groups, sorts, joins and shuffles give what pandas gives.
DATA_SEED names the first of DATA_SEEDS seeds (10)."""

import os
import random

import pandas as pd
import pyarrow as pa
import pytest
from sheaf import data
from sheaf.data.aggregate import Count, Max, Mean, Min, Unique
from sheaf.data.expressions import col

pytestmark = pytest.mark.usefixtures("node")
FIRST = int(os.environ.get("DATA_SEED") or random.randrange(1 << 30))
JOINS = {"inner": "inner", "left_outer": "left", "right_outer": "right", "full_outer": "outer"}


def words(value):
    return "None" if pd.isna(value) else str(int(value))


def joined_by_pandas(left, right, how):
    """Rows (k, v, b) as text. NULL equals nothing here, and NULL there."""
    both = left[left.k.notna()].merge(right, on="k", how=how)
    rows = [tuple(map(words, row)) for row in zip(both.k, both.v, both.b, strict=True)]
    if how in ("left", "outer"):
        rows += [("None", words(v), "None") for v in left[left.k.isna()].v]
    return sorted(rows)


@pytest.mark.parametrize("number", range(int(os.environ.get("DATA_SEEDS", "10"))))
def test_as_pandas(number):
    print("DATA_SEED", FIRST + number)
    rng = random.Random(FIRST + number)
    count = rng.choice([1, 7, 100, 3000])
    keys = [rng.choice([None, *range(rng.choice([2, 50]))]) for _ in range(count)]
    texts = [rng.choice(["a", "b", "", None, f"z{rng.randrange(20)}"]) for _ in range(count)]
    frame = pd.DataFrame(
        {
            "k": pd.array(keys, dtype="Int64"),
            "s": pd.array(texts, dtype="string"),
            "v": [rng.randrange(100) for _ in range(count)],
        }
    )
    table = pa.Table.from_pandas(frame, preserve_index=False)
    cuts = [0, *sorted(rng.randrange(count + 1) for _ in range(rng.randrange(4))), count]
    pieces = [table.slice(a, b - a) for a, b in zip(cuts, cuts[1:])]
    rows, parts = data.from_arrow(pieces), rng.choice([None, 1, 3, 8])

    key = rng.choice(["k", "s"])
    sums = rows.groupby(key, num_partitions=parts).sum("v").take_all()
    wanted = frame.groupby(key, dropna=False)["v"].sum().items()
    assert {row[key]: row["sum(v)"] for row in sums} == {
        None if pd.isna(name) else name: int(total) for name, total in wanted
    }

    falls = rng.random() < 0.5
    in_order = [row["v"] for row in rows.sort("v", descending=falls).take_all()]
    assert in_order == sorted(frame.v, reverse=falls)

    other = pd.DataFrame({"k": pd.array([rng.randrange(60) for _ in range(40)], dtype="Int64")})
    other["b"] = range(len(other))
    kind = rng.choice(list(JOINS))
    joined = rows.join(data.from_pandas(other), kind, parts or 4, on=("k",)).take_all()
    told = sorted(tuple(str(row[name]) for name in ("k", "v", "b")) for row in joined)
    assert told == joined_by_pandas(frame, other, JOINS[kind])

    assert sorted(row["v"] for row in rows.random_shuffle().take_all()) == sorted(frame.v)


NOTHING = [
    lambda rows: rows.limit(0),
    lambda rows: rows.filter(expr=col("v") > 10**6),
    lambda rows: rows.filter(lambda row: False),
]
STEPS = [
    lambda rows: rows.with_column("w", col("v") * 2.5),
    lambda rows: rows.rename_columns({"v": "v"}),
    lambda rows: rows.drop_columns(["s"]) if "s" in rows.schema().names else rows,
    lambda rows: rows.select_columns(["v", "k"]),
    lambda rows: rows.sort(["k", "v"], descending=[True, False]),
    lambda rows: rows.random_shuffle(),
    lambda rows: rows.repartition(3),
    lambda rows: rows.repartition(2, keys=["k"]),
    lambda rows: rows.repartition(target_num_rows_per_block=3),
    lambda rows: rows.union(rows),
    lambda rows: rows.zip(rows),
    lambda rows: rows.limit(2),
    lambda rows: rows.join(
        rows.select_columns(["k", "v"]),
        "left_outer",
        2,
        ("k",),
        left_suffix=f"_of_{len(rows.schema().names)}",  # A suffix that no join before has used.
    ),
    lambda rows: rows.groupby("k").sum("v").rename_columns({"sum(v)": "v"}),
    lambda rows: rows.groupby("k").aggregate(Min("v", alias_name="v"), Count(), Mean("v")),
    lambda rows: rows.groupby("k").aggregate(Unique("v", alias_name="u"), Max("v", alias_name="v")),
]


@pytest.mark.parametrize("number", range(int(os.environ.get("DATA_SEEDS", "10"))))
def test_what_has_no_rows_has_the_schema(number):
    """Wherever on its way a program loses all its rows."""
    print("DATA_SEED", FIRST + number)
    rng = random.Random(FIRST + number)
    table = pa.table({"k": [1, 2, None, 2], "s": ["a", None, "b", "c"], "v": [1, 2, 3, 4]})
    steps = rng.choices(STEPS, k=rng.randrange(1, 5))
    where, empty = rng.randrange(len(steps) + 1), rng.choice(NOTHING)
    context = data.DataContext.get_current().copy()
    context.small_input_bytes = rng.choice([0, context.small_input_bytes])
    with data.DataContext.current(context):
        rows = wanted = data.from_arrow([table.slice(0, 1), table.slice(1)])
    for at, step in enumerate([*steps, None]):
        if at == where:
            rows = empty(rows)
        if step is not None:
            rows, wanted = step(rows), step(wanted)
    made = rows.materialize()
    assert made.count() == 0
    assert made.schema() == rows.schema() == wanted.materialize().schema()
    assert list(rows.to_pandas().columns) == wanted.schema().names
