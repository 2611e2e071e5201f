# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Groups as DataFrames: each is what it would be if it were made alone, and so is what becomes of
it, though many are made at once."""

import datetime
import decimal
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sheaf.data import block, transforms
from sheaf.data.errors import UserCodeError
from sheaf.data.exchanges.aggregation import groups_of
from sheaf.data.transforms.framed import Framed, framed

COLUMNS = {
    "int": lambda r: r.randrange(9),
    "int or none": lambda r: r.choice([None, 1, 2]),
    "flag": lambda r: r.random() < 0.5,
    "flag or none": lambda r: r.choice([None, True, False]),
    "float": lambda r: r.choice([None, 0.5, float("nan"), -0.0]),
    "text": lambda r: r.choice([None, "", "a", "b" * 20]),
    "bytes": lambda r: r.choice([None, b"", b"xyz"]),
    "day": lambda r: r.choice([None, datetime.date(2026, 1, r.randrange(1, 28))]),
    "moment": lambda r: r.choice([None, datetime.datetime(2026, 1, 1, r.randrange(24))]),
    "time": lambda r: r.choice([None, datetime.time(r.randrange(24))]),
    "decimal": lambda r: r.choice([None, decimal.Decimal("1.50")]),
    "list": lambda r: r.choice([None, [], [1, None], [2]]),
    "struct": lambda r: {"a": r.choice([None, 1])},
    "nothing": lambda r: None,
}


def random_table(draw, rows):
    names = draw.sample(sorted(COLUMNS), draw.randrange(1, 6))
    columns = {name: [COLUMNS[name](draw) for _ in range(rows)] for name in names}
    if draw.random() < 0.3:
        columns["kind"] = pa.array([draw.choice("xyz") for _ in range(rows)]).dictionary_encode()
    groups = draw.choice([1, 3, rows])
    return pa.table({"k": [draw.randrange(groups) for _ in range(rows)], **columns})


def transformed(fn, table, together):
    transform = transforms.map_batches(fn, batch_format="pandas", name="MapGroups(f)")
    groups = groups_of(table, ["k"])
    return list(transform(framed(groups, zero_copy=True) if together else groups))


@pytest.mark.parametrize("seed", range(60))
def test_groups_are_the_same_frames_as_if_each_were_made_alone(seed):
    draw = random.Random(seed)
    table = random_table(draw, draw.choice([1, 2, 50, 150]))
    groups = list(groups_of(table, ["k"]))
    for one, group in zip(framed(iter(groups), True), groups, strict=True):
        frame = one.frame if isinstance(one, Framed) else block.table_to_batch(one, "pandas")
        pd.testing.assert_frame_equal(
            frame, block.table_to_batch(group, "pandas"), check_index_type="exact"
        )


RESULTS = {
    "itself": lambda frame: frame,
    "changed": lambda frame: frame.assign(n=len(frame), half=len(frame) / 2),
    "in place": lambda frame: frame.insert(0, "first", range(len(frame))) or frame,
    "of several kinds": lambda frame: (
        frame if len(frame) % 2 else pd.DataFrame({"n": [len(frame)], "o": [[1]]})
    ),
    "another type": lambda frame: pd.DataFrame({"n": [1 if len(frame) % 2 else 0.5]}),
    "dicts": lambda frame: {"n": [len(frame)]},
    "none of some": lambda frame: frame[:0] if len(frame) % 3 else frame,
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_the_same_rows_as_if_each_were_taken_alone(name):
    """In the same order and types, however many become one table."""
    for seed in range(6):
        table = random_table(random.Random(seed), 120)

        def plain(together, table=table):
            made = [t for t in transformed(RESULTS[name], table, together) if t.num_rows]
            whole = block.concat(made)
            return whole.schema.remove_metadata(), [repr(r) for r in block.table_to_rows(whole)]

        assert plain(True) == plain(False), f"seed {seed}"


def test_many_small_results_become_one_table():
    table = pa.table({"k": np.arange(2000) // 2, "x": np.arange(2000.0)})
    made = transformed(lambda frame: frame, table, True)
    assert len(made) < 500 and block.concat(made).equals(block.concat([table]))


def test_a_function_may_change_what_it_got_and_what_it_gave():
    """Neither the next group nor what it has returned before sees it."""
    table = pa.table({"k": [0, 0, 1, 1, 2, 2], "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    kept = pd.DataFrame({"sum": [0.0]})

    def summed(frame):
        frame.loc[:, "x"] = frame["x"] * 10
        kept.loc[0, "sum"] = frame["x"].sum()
        return kept

    sums = [row["sum"] for t in transformed(summed, table, True) for row in t.to_pylist()]
    assert sums == [30.0, 70.0, 110.0]
    assert table.column("x").to_pylist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_an_error_names_a_row_of_its_group():
    table = pa.table({"k": [0, 0, 1, 1, 2, 2], "x": [1, 2, 3, 4, 5, 6]})

    def fails(frame):
        if frame["k"][0] == 1:
            raise ValueError("no")
        return frame

    with pytest.raises(UserCodeError, match=r"'x': 3"):
        transformed(fails, table, True)
    with pytest.raises(UserCodeError, match=r"'x': 1.*want a batch|want a batch.*'x': 1"):
        transformed(lambda frame: 5, table, True)
