# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What operators do with blocks: users' functions of all kinds, columns, limits, cutting; and what
is said when a function fails."""

import asyncio
import functools
import pickle

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
from sheaf import cloudpickle  # noqa: E402
from sheaf.data import block, transforms  # noqa: E402
from sheaf.data.columns import column_of  # noqa: E402
from sheaf.data.errors import ColumnNotFoundError, UserCodeError  # noqa: E402
from sheaf.data.task_context import TaskContext  # noqa: E402


def run(transform, *tables):
    """What a copy of the transform, as a task gets one, makes of these tables."""
    return list(pickle.loads(cloudpickle.dumps(transform))(iter(tables)))


def rows(transform, *tables):
    return [row for table in run(transform, *tables) for row in block.table_to_rows(table)]


def numbers(*ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


def raised(transform, *tables):
    with pytest.raises(UserCodeError) as caught:
        run(transform, *tables)
    return caught.value


class Add:
    """A class as a function."""

    made = 0

    def __init__(self, by, fail=False):
        if fail:
            raise RuntimeError("no model")
        type(self).made += 1
        self.by = by

    def __call__(self, row):
        return {"id": row["id"] + self.by}


class AddLater(Add):
    async def __call__(self, row):
        await asyncio.sleep(0)
        return {"id": row["id"] + self.by}


def test_map():
    assert rows(transforms.map_rows(lambda r: {"x": r["id"] * 2}), numbers(1, 2), numbers(3)) == [
        {"x": 2},
        {"x": 4},
        {"x": 6},
    ]
    add = transforms.map_rows(
        lambda r, a, b=0: {"x": r["id"] + a + b}, fn_args=[10], fn_kwargs={"b": 100}
    )
    assert rows(add, numbers(1)) == [{"x": 111}]
    assert rows(transforms.map_rows(functools.partial(lambda a, r: {"x": a}, 5)), numbers(1)) == [
        {"x": 5}
    ]


def test_map_of_many_rows_keeps_their_order():
    many = pa.table({"id": np.arange(40_000)})
    assert [row["id"] for row in rows(transforms.map_rows(lambda r: r), many)] == list(
        range(40_000)
    )


def test_flat_map_of_lists_and_generators():
    def twice(row):
        yield row
        yield {"id": -row["id"]}

    want = [{"id": 1}, {"id": -1}, {"id": 2}, {"id": -2}]
    assert rows(transforms.flat_map(twice), numbers(1, 2)) == want
    assert rows(transforms.flat_map(lambda r: list(twice(r))), numbers(1, 2)) == want
    assert rows(transforms.flat_map(lambda r: []), numbers(1, 2)) == []


def test_filter_keeps_types():
    table = pa.table({"id": pa.array([1, 2, 3], pa.int8()), "t": column_of("t", np.ones((3, 2)))})
    (kept,) = run(transforms.filter_rows(lambda r: r["id"] != 2), table)
    assert kept.schema == table.schema and kept.column("id").to_pylist() == [1, 3]
    (none,) = run(transforms.filter_rows(lambda r: 0 / 0), table.slice(0, 0))
    assert none.schema == table.schema


def test_map_batches_in_all_formats():
    pytest.importorskip("pandas", reason="not installed: pip install pandas")
    pytest.importorskip("polars", reason="not installed: pip install polars")
    for batch_format, kind in (
        ("default", dict),
        ("numpy", dict),
        ("pandas", "DataFrame"),
        ("pyarrow", "Table"),
        ("polars", "DataFrame"),
        (None, "Table"),
    ):

        def same(batch):
            assert kind in (type(batch), type(batch).__name__)
            return batch

        found = run(
            transforms.map_batches(same, batch_size=2, batch_format=batch_format),
            numbers(1, 2, 3),
            numbers(4),
        )
        assert [table.to_pydict() for table in found] == [{"id": [1, 2]}, {"id": [3, 4]}]


def test_map_batches_of_generators():
    def several(batch):
        for value in batch["id"]:
            yield {"id": np.array([value, value])}

    assert [t.num_rows for t in run(transforms.map_batches(several), numbers(1, 2, 3))] == [2, 2, 2]


def test_coroutines_run_together_and_in_order():
    under_way, most = 0, 0

    async def later(batch):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(int(10 - batch["id"][0])):
            await asyncio.sleep(0)
        under_way -= 1
        return batch

    transform = transforms.map_batches(later, batch_size=1)
    found = list(transform(iter([numbers(*range(10))])))
    assert [t.column("id")[0].as_py() for t in found] == list(range(10)) and most > 5


def test_coroutines_for_rows_and_asynchronous_generators():
    async def plus(row, by):
        await asyncio.sleep(0)
        return {"id": row["id"] + by}

    async def several(batch):
        for value in batch["id"]:
            await asyncio.sleep(0)
            yield {"id": [value]}

    async def odd(row):
        return row["id"] % 2

    assert rows(transforms.map_rows(plus, fn_args=[1]), numbers(1, 2)) == [{"id": 2}, {"id": 3}]
    assert rows(transforms.map_batches(several), numbers(1, 2)) == [{"id": 1}, {"id": 2}]
    assert rows(transforms.filter_rows(odd), numbers(1, 2, 3)) == [{"id": 1}, {"id": 3}]
    assert rows(transforms.map_rows(transforms.ClassUdf(AddLater, (5,))), numbers(1)) == [{"id": 6}]


def test_a_class_is_made_once_per_process():
    udf = transforms.ClassUdf(Add, (), {"by": 3})
    before = Add.made
    transforms.prepare(udf)
    for _ in range(3):
        assert rows(transforms.map_rows(udf), numbers(1)) == [{"id": 4}]
    assert Add.made == before + 1


def test_a_constructor_that_raises_is_named():
    error = raised(transforms.map_rows(transforms.ClassUdf(Add, (1,), {"fail": True})), numbers(1))
    assert "the constructor of Add: RuntimeError: no model" in str(error)


def seven(row):
    if row["id"] == 7:
        raise KeyError("seven")
    return row


@pytest.mark.parametrize("make", [transforms.map_rows, transforms.filter_rows, transforms.flat_map])
def test_an_error_names_the_operator_and_the_row(make):
    error = raised(make(lambda r: [seven(r)]), numbers(6, 7, 8))
    assert "KeyError: 'seven'" in str(error) and error.row == "{'id': 7}"
    assert "(<lambda>)" in error.operator and isinstance(error.__cause__, KeyError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_of_a_coroutine_or_a_generator_names_the_row():
    async def later(row):
        await asyncio.sleep(0)
        return seven(row)

    def several(row):
        yield row
        seven(row)

    assert raised(transforms.map_rows(later, name="Map(mine)"), numbers(6, 7)).row == "{'id': 7}"
    assert raised(transforms.flat_map(several), numbers(6, 7, 8)).row == "{'id': 7}"


def test_an_error_of_a_batch_shows_its_first_row():
    def bad(batch):
        if 7 in batch["id"]:
            raise KeyError("seven")
        return batch

    error = raised(transforms.map_batches(bad, batch_size=2), numbers(5, 6, 7, 8))
    assert str(error).startswith("MapBatches(bad): KeyError: 'seven'; one row of it: {'id': ")


@pytest.mark.parametrize(
    "make, result, said",
    [
        (transforms.map_rows, None, "returned None of type NoneType: want one dict per row"),
        (transforms.map_rows, 5, "returned 5 of type int"),
        (transforms.map_rows, [{"a": 1}], "of type list"),
        (transforms.flat_map, None, "want a list of dicts"),
        (transforms.flat_map, {"a": 1}, "want a list of dicts"),
        (transforms.flat_map, [1], "returned 1 of type int: want a list of dicts per row"),
        (transforms.map_batches, None, "got None of type NoneType: want a batch"),
        (transforms.map_batches, 3, "got 3 of type int: want a batch"),
        (transforms.map_batches, {"a": 3}, "column 'a' is 3 of type int"),
        (transforms.map_batches, {"a": [1, 2], "b": [1]}, "several lengths: 'a' 2, 'b' 1"),
        (transforms.map_batches, {"a": [1, "x"]}, "column 'a' is int in row 0 and str in row 1"),
    ],
)
def test_results_that_are_no_data(make, result, said):
    error = raised(make(lambda value: result), numbers(1))
    assert said in str(error) and "(<lambda>)" in str(error)


def test_writing_into_a_view_says_how_to_get_a_copy():
    def change(batch):
        batch["id"][0] = 5
        return batch

    assert "zero_copy_batch=False" in str(raised(transforms.map_batches(change), numbers(1)))
    table = numbers(1, 2)
    assert rows(transforms.map_batches(change, zero_copy_batch=False), table) == [
        {"id": 5},
        {"id": 2},
    ]
    assert table.to_pydict() == {"id": [1, 2]}


def test_arguments_of_map_batches_are_checked_at_once():
    with pytest.raises(ValueError, match="batch_size=0"):
        transforms.map_batches(seven, batch_size=0)
    with pytest.raises(ValueError, match="batch_format='arow'"):
        transforms.map_batches(seven, batch_format="arow")


def test_other_keys_in_later_rows_and_blocks():
    made = transforms.map_rows(lambda r: {"a": 1} if r["id"] < 2 else {"b": "x"})
    assert rows(made, numbers(1, 2)) == [{"a": 1, "b": None}, {"a": None, "b": "x"}]
    (cut,) = transforms.cut_blocks(made(iter([numbers(1), numbers(2)])), 1 << 20, 1 << 10)
    assert cut.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}]


def test_columns():
    table = pa.table({"a": [1], "b": [2], "c": [3]})
    assert run(transforms.select(["c", "a"]), table)[0].column_names == ["c", "a"]
    assert run(transforms.drop(["b"]), table)[0].column_names == ["a", "c"]
    assert run(transforms.rename({"a": "x"}), table)[0].column_names == ["x", "b", "c"]
    assert run(transforms.rename(["x", "y", "z"]), table)[0].column_names == ["x", "y", "z"]
    assert run(transforms.select([]), table)[0].num_rows == 1
    for make, columns in (
        (transforms.select, ["aa"]),
        (transforms.drop, ["aa"]),
        (transforms.rename, {"aa": "x"}),
    ):
        with pytest.raises(ColumnNotFoundError, match="_columns: no column 'aa'; did you mean 'a'"):
            run(make(columns), table)
    for names in (["x"], {"a": "b"}):
        with pytest.raises(ValueError, match="rename_columns: "):
            run(transforms.rename(names), table)


def test_a_limit_takes_no_more_than_it_needs():
    taken = []
    source = (taken.append(n) or numbers(n, n) for n in range(100))
    found = list(transforms.limit_rows(3)(source))
    assert [t.num_rows for t in found] == [2, 1] and len(taken) == 2
    assert [t.num_rows for t in run(transforms.limit_rows(0), numbers(1))] == [0]


def test_a_chain():
    both = transforms.chain(
        [transforms.map_rows(lambda r: {"x": r["id"]}), transforms.limit_rows(1)]
    )
    assert rows(both, numbers(1, 2)) == [{"x": 1}]


def test_reading_gives_tables():
    read = transforms.read(lambda: [{"a": [1]}, numbers(2)])
    assert [t.to_pydict() for t in run(read)] == [{"a": [1]}, {"id": [2]}]


class Sink:
    def write(self, tables, context):
        return {"task": context.task_idx, "rows": [t.num_rows for t in tables]}


def test_writing_tells_what_was_written():
    with TaskContext(3).entered():
        (told,) = run(transforms.write(Sink()), numbers(1, 2), numbers(3))
    (row,) = block.table_to_rows(told)
    assert (row["num_rows"], row["size_bytes"]) == (3, 24)
    assert row["write_return"] == {"task": 3, "rows": [2, 1]}
    assert TaskContext.current().task_idx == 0


def cut(tables, *limits):
    return [table.num_rows for table in transforms.cut_blocks(iter(tables), *limits)]


def test_cutting():
    assert cut([numbers(*range(10))], 80) == [10]
    assert cut([numbers(*range(10))], 40) == [5, 5]
    assert cut([numbers(*range(10))], 79) == [5, 5]
    assert cut([numbers(*range(10))], 1) == [1] * 10
    assert cut([numbers(1)] * 10, 80, 24) == [3, 3, 3, 1]
    assert cut([numbers(1)] * 10, 80) == [1] * 10
    assert cut([numbers(1, 2), numbers(*range(9)), numbers(1)], 80, 40) == [2, 9, 1]
    uneven = pa.table({"s": ["x" * 1000, "x", "x", "x"]})
    assert sum(cut([uneven], 500)) == 4


def test_cutting_keeps_a_schema_without_rows():
    (empty,) = transforms.cut_blocks(iter([pa.table({}), numbers(), numbers()]), 100)
    assert empty.schema.names == ["id"]
    assert cut([numbers(), numbers(1), numbers()], 100) == [1] and cut([], 100) == []


def test_joined_blocks_have_one_chunk_per_column():
    (joined,) = transforms.cut_blocks(iter([numbers(1)] * 50), 1000, 1000)
    assert joined.column("id").num_chunks == 1
