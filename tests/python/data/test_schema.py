# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How the schemas of several blocks or files become one, and what does not fit."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
from sheaf.data import block  # noqa: E402
from sheaf.data.errors import ColumnNotFoundError, SchemaMismatchError  # noqa: E402
from sheaf.data.schema import Schema, check_columns, conform, unify_schemas  # noqa: E402

BOTH_WAYS = [
    (pa.int32(), pa.int64(), pa.int64()),
    (pa.int8(), pa.float64(), pa.float64()),
    (pa.uint8(), pa.int32(), pa.int64()),
    (pa.float32(), pa.float64(), pa.float64()),
    (pa.null(), pa.string(), pa.string()),
    (pa.string(), pa.large_string(), pa.large_string()),
    (pa.binary(), pa.large_binary(), pa.large_binary()),
    (pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.string()),
    (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
    (pa.date32(), pa.date64(), pa.date64()),
    (pa.decimal128(5, 2), pa.decimal128(6, 1), pa.decimal128(7, 2)),
    (pa.list_(pa.int32()), pa.list_(pa.float64()), pa.list_(pa.float64())),
    (pa.list_(pa.null()), pa.large_list(pa.int64()), pa.large_list(pa.int64())),
    (
        pa.struct([("a", pa.int64())]),
        pa.struct([("a", pa.float64()), ("b", pa.string())]),
        pa.struct([("a", pa.float64()), ("b", pa.string())]),
    ),
]
NEVER = [
    (pa.int64(), pa.string()),
    (pa.bool_(), pa.int64()),
    (pa.string(), pa.binary()),
    (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    (pa.list_(pa.int64()), pa.int64()),
    (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())])),
    (pa.fixed_shape_tensor(pa.int64(), (2,)), pa.int64()),
    (pa.fixed_shape_tensor(pa.int64(), (2,)), pa.fixed_shape_tensor(pa.int64(), (2, 2))),
]


def of(kind, name="x"):
    return pa.schema([(name, kind)])


@pytest.mark.parametrize("a, b, both", BOTH_WAYS, ids=str)
def test_two_types_that_become_one(a, b, both):
    assert unify_schemas([of(a), of(b)]) == unify_schemas([of(b), of(a)]) == of(both)
    for kind in (a, b):
        assert conform(of(kind).empty_table(), of(both)).schema == of(both)


@pytest.mark.parametrize("a, b", NEVER, ids=str)
def test_two_types_that_do_not(a, b):
    with pytest.raises(SchemaMismatchError) as caught:
        unify_schemas([of(a), of(a), of(b)], ["one.csv", "two.csv", "three.csv"])
    assert f"'x' is {a} in one.csv and {b} in three.csv" in str(caught.value)


def test_int_then_float_then_string_names_column_and_files():
    schemas = [of(pa.int64()), of(pa.float64()), of(pa.string())]
    with pytest.raises(SchemaMismatchError, match="'x' is double in b.csv and string in c.csv"):
        unify_schemas(schemas, ["a.csv", "b.csv", "c.csv"])


def test_a_column_that_is_missing_somewhere_is_null_there():
    first, second = pa.table({"a": [1], "b": ["x"]}), pa.table({"b": [None], "c": [1.5]})
    schema = unify_schemas([first.schema, second.schema])
    assert schema.names == ["a", "b", "c"]
    assert conform(second, schema).to_pylist() == [{"a": None, "b": None, "c": 1.5}]


def test_values_are_converted():
    table = pa.table({"x": [2**60 + 1], "s": [{"a": 1}]})
    schema = pa.schema(
        [("x", pa.float64()), ("s", pa.struct([("a", pa.float64()), ("b", pa.string())]))]
    )
    assert conform(table, schema).to_pylist() == [{"x": 2.0**60, "s": {"a": 1.0, "b": None}}]
    assert conform(table, table.schema) is table


def test_tensors_of_several_shapes_become_one_column():
    tables = [
        block.batch_to_table({"x": np.full((2, n), n, kind)}) for n, kind in ((1, "i4"), (3, "f8"))
    ]
    joined = block.concat([*tables, block.rows_to_table([{"y": 1}])])
    rows = [row["x"] for row in block.table_to_rows(joined)]
    assert [None if row is None else row.tolist() for row in rows] == [
        [1.0],
        [1.0],
        [3.0] * 3,
        [3.0] * 3,
        None,
    ]
    same = block.concat(
        [block.batch_to_table({"x": np.ones((1, 2), kind)}) for kind in ("i4", "f8")]
    )
    assert same.schema.field("x").type == pa.fixed_shape_tensor(pa.float64(), (2,))


def test_objects_take_in_other_values():
    joined = block.concat([block.rows_to_table([{"x": 1j}]), block.rows_to_table([{"x": 2}])])
    assert [row["x"] for row in block.table_to_rows(joined)] == [1j, 2]


def test_what_users_see_of_a_schema():
    schema = Schema(pa.schema([("id", pa.int64()), ("a longer name", pa.string())]))
    assert schema.names == ["id", "a longer name"] and schema.types == [pa.int64(), pa.string()]
    assert repr(schema).splitlines()[2:] == ["id             int64", "a longer name  string"]
    assert schema == Schema(schema.base_schema) and schema != Schema(pa.schema([]))


def test_a_column_that_does_not_exist_is_named_with_the_nearest():
    with pytest.raises(
        ColumnNotFoundError,
        match=r"^sort: no column 'amuont'; did you mean 'amount'\? Columns: 'id', 'amount'",
    ):
        check_columns(["id", "amuont"], ["id", "amount"], "sort")
    with pytest.raises(KeyError, match="Columns: none"):
        check_columns(["id"], [])
