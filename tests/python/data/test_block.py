# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What rows and batches become as Arrow, and back: values, tensors, objects, and what is no data."""

import datetime
import decimal
import pickle
import threading

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
from sheaf.data import block, tables  # noqa: E402
from sheaf.data.arrow_types import ArrowVariableShapedTensorType, PickledObjectType  # noqa: E402
from sheaf.data.columns import column_of  # noqa: E402
from sheaf.data.errors import BatchError, ColumnNotFoundError, SchemaMismatchError  # noqa: E402


class Thing:
    """Arrow has no type for it."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number


def round_trip(rows):
    return list(block.table_to_rows(block.rows_to_table(rows)))


def same(a, b):
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
    return type(a) is type(b) and a == b


NOW = datetime.datetime(2026, 11, 27, 1, 2, 3, 456789)
VALUES = {
    "int": [1, -(2**40), 2**63 - 1],
    "float": [1.5, float("inf"), -0.0],
    "bool": [True, False, True],
    "text": ["a", "", "\u00e4\U0001f600"],
    "bytes": [b"a", b"", b"\x00\xff"],
    "none among ints": [1, None, 3],
    "date and time": [NOW, None, NOW],
    "time zone": [NOW.replace(tzinfo=datetime.UTC)] * 3,
    "duration": [datetime.timedelta(seconds=1)] * 3,
    "decimal": [decimal.Decimal("1.50"), decimal.Decimal("-2.25"), None],
    "list": [[1, 2], [], [3]],
    "nested": [{"a": [1], "b": {"c": "x"}}, {"a": [], "b": {"c": None}}, None],
    "object": [Thing(1), Thing(2), None],
    "large int": [2**64 - 1, 1, None],
    "beyond 64 bits": [2**70, 1, None],
    "set of tuples": [frozenset([(1, "a")]), frozenset(), None],
    "complex": [1j, 2j, 3j],
    "all none": [None, None, None],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_as_they_went_in(name):
    rows = [{"x": value} for value in VALUES[name]]
    back = round_trip(rows)
    assert back == rows
    assert [type(row["x"]) for row in back] == [type(row["x"]) for row in rows]


ARRAYS = {
    "one shape": [np.arange(6.0).reshape(2, 3), np.ones((2, 3)), np.zeros((2, 3))],
    "vectors": [np.array([1, 2], np.int16)] * 3,
    "half floats": [np.ones((2, 2), np.float16)] * 3,
    "booleans": [np.array([[True, False]]), np.array([[False, False]]), np.array([[True, True]])],
    "images": [np.full((4, 5, 3), n, np.uint8) for n in range(3)],
    "several shapes": [np.ones((2, 3)), np.zeros((1, 4)), np.ones((0, 2))],
    "several dimensions": [np.ones(2), np.ones((2, 2)), np.ones(3)],
    "no elements": [np.ones((0, 3)), np.ones((0, 3)), np.ones((0, 3))],
    "complex": [np.ones(2, complex)] * 3,
    "text of two dimensions": [np.array([["a", "bc"]])] * 3,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_in_rows_come_back_as_arrays(name):
    back = round_trip([{"x": array} for array in ARRAYS[name]])
    assert len(back) == 3
    assert all(same(row["x"], array) for row, array in zip(back, ARRAYS[name]))


def test_an_array_that_is_missing_is_none():
    back = round_trip([{"x": np.ones((2, 2))}, {"x": None}, {"y": 1}])
    assert same(back[0]["x"], np.ones((2, 2))) and back[1]["x"] is None and back[2]["x"] is None


def test_an_array_of_strings_is_a_list():
    assert round_trip([{"x": np.array(["a", "bc"])}]) == [{"x": ["a", "bc"]}]


def test_types_of_tensors():
    table = block.rows_to_table(
        [{"a": np.ones((2, 3), np.float32), "b": np.ones(n)} for n in (1, 2)]
    )
    assert table.schema.field("a").type == pa.fixed_shape_tensor(pa.float32(), (2, 3))
    assert table.schema.field("b").type == ArrowVariableShapedTensorType(pa.float64(), 1)


def test_rows_that_are_no_dicts_become_items():
    assert round_trip([1, 2]) == [{"item": 1}, {"item": 2}]
    assert round_trip(["a", None]) == [{"item": "a"}, {"item": None}]


def test_a_key_that_is_missing_is_none_and_columns_keep_their_order():
    table = block.rows_to_table([{"b": 1}, {"a": 2, "b": 3}, {}])
    assert table.column_names == ["b", "a"]
    assert table.to_pylist() == [{"b": 1, "a": None}, {"b": 3, "a": 2}, {"b": None, "a": None}]


def test_rows_without_keys_are_counted():
    table = block.rows_to_table([{}, {}, {}])
    assert (table.num_rows, table.num_columns) == (3, 0)
    assert list(block.table_to_rows(table)) == [{}, {}, {}]
    assert block.concat([table, block.slice_rows(table, 1)]).num_rows == 5


def test_ints_and_floats_share_a_column_and_strings_do_not():
    assert round_trip([{"x": 1}, {"x": 2.5}]) == [{"x": 1.0}, {"x": 2.5}]
    for values in ([1, "a"], ["a", 1], [None, b"a", 2.5], [True, "x"]):
        with pytest.raises(SchemaMismatchError, match="column 'x'.* row ") as caught:
            block.rows_to_table([{"x": value} for value in values])
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.column, str(again)) == ("x", str(caught.value))


def test_nan_among_strings_is_null():
    assert round_trip([{"x": "a"}, {"x": float("nan")}]) == [{"x": "a"}, {"x": None}]


def test_a_value_that_cannot_be_pickled_names_its_column():
    with pytest.raises(BatchError, match="column 'lock'.*type lock"):
        block.rows_to_table([{"lock": threading.Lock()}])


def test_batches_of_all_kinds_become_tables():
    pandas = pytest.importorskip("pandas", reason="not installed: pip install pandas")
    polars = pytest.importorskip("polars", reason="not installed: pip install polars")

    want = pa.table({"a": [1, 2], "b": ["x", "y"]})
    columns = {"a": [1, 2], "b": ["x", "y"]}
    assert block.batch_to_table(columns).equals(want)
    assert block.batch_to_table({"a": np.array([1, 2]), "b": np.array(["x", "y"])}).equals(want)
    assert block.batch_to_table({"a": (1, 2), "b": pa.array(["x", "y"])}).equals(want)
    assert block.batch_to_table(want) is want
    assert block.batch_to_table(want.to_batches()[0]).equals(want)
    assert block.batch_to_table(pandas.DataFrame(columns)).to_pydict() == columns
    assert block.batch_to_table(polars.DataFrame(columns)).to_pydict() == columns
    assert block.batch_to_table({}).num_rows == 0


def test_pandas_keeps_tensors_and_objects():
    pandas = pytest.importorskip("pandas", reason="not installed: pip install pandas")

    frame = pandas.DataFrame({"t": [np.ones((2, 2)), np.zeros((2, 2))], 0: [Thing(1), Thing(2)]})
    table = block.batch_to_table(frame)
    assert table.column_names == ["t", "0"]
    assert table.schema.types == [pa.fixed_shape_tensor(pa.float64(), (2, 2)), PickledObjectType()]
    back = block.table_to_batch(table, "pandas")
    assert same(back["t"][0], np.ones((2, 2))) and back["0"][1] == Thing(2)


def masked(values, mask, **options):
    return np.ma.masked_array(values, mask, **options)


@pytest.mark.parametrize(
    ("array", "want", "kind"),
    [
        (masked([1, 2], [0, 1], dtype="i2"), [1, None], pa.int16()),
        (masked([1.5, np.nan], [1, 0]), [None, np.nan], pa.float64()),
        (masked(["a", "b"], [0, 1]), ["a", None], pa.string()),
        (masked([True, False], [1, 0]), [None, False], pa.bool_()),
        (masked(np.array([{"a": 1}, {}]), [0, 1]), [{"a": 1}, None], pa.struct({"a": pa.int64()})),
        (masked(np.array([0, 1], "M8[s]"), [1, 1]), [None, None], pa.timestamp("s")),
        (masked([[1, 2], [3, 4]], [[0, 1], [0, 0]], dtype="f4"), [[1, None], [3, 4]], None),
    ],
)
def test_what_a_mask_hides_is_null(array, want, kind):
    column = column_of("x", array)
    assert column.type == (kind or pa.list_(pa.float32()))
    assert repr(column.to_pylist()) == repr(pa.array(want, column.type).to_pylist())


def test_masked_values_of_rows_are_null():
    rows = [{"x": masked([1, 2], [0, 1]), "y": np.ma.masked}, {"x": np.array([3, 4]), "y": 1}]
    assert round_trip(rows) == [{"x": [1, None], "y": None}, {"x": [3, 4], "y": 1}]


@pytest.mark.parametrize("dtype", ["i4", "f4", "f2", "?", "c8", "M8[ns]", "M8[s]", "U1", "O", "g"])
@pytest.mark.parametrize("shape", [(2,), (2, 2), (2, 1, 2), (2, 0)])
def test_types_of_masked_columns_do_not_depend_on_what_is_masked(dtype, shape):
    data = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    some, no, every = np.zeros(shape, bool), np.zeros(shape, bool), np.ones(shape, bool)
    some[..., :1] = True
    columns = [column_of("x", masked(data, mask)) for mask in (some, no, every)]
    assert dtype == "O" or len({column.type for column in columns}) == 1
    block.unify_schemas([pa.schema({"x": column.type}) for column in columns])
    if dtype in ("i4", "f4", "c8"):
        assert round_trip_of(columns[0]) == masked(data, some).tolist()


def round_trip_of(column):
    return [row["x"] for row in block.table_to_rows(pa.table({"x": column}))]


def test_rows_of_masked_arrays_are_lists_whatever_is_masked():
    parts = [
        block.rows_to_table([{"x": masked(np.array([1, 2], "f4"), mask)}])
        for mask in ([0, 0], [0, 1], [1, 1])
    ]
    assert parts[0].schema.types == [pa.list_(pa.float32())]
    rows = list(block.table_to_rows(block.concat(parts)))
    assert [row["x"] for row in rows] == [[1, 2], [1, None], [None, None]]
    (zero,) = block.table_to_rows(block.rows_to_table([{"x": np.ma.array(1, mask=True)}]))
    assert zero == {"x": None}


@pytest.mark.parametrize(
    "batch, said",
    [
        (None, "got None of type NoneType"),
        (7, "got 7 of type int"),
        ([{"a": 1}], "of type list"),
        ("text", "of type str"),
        ({"a": 1}, "column 'a' is 1 of type int"),
        ({"a": "text"}, "column 'a' is 'text'"),
        ({"a": None}, "column 'a' is None"),
        ({"a": np.float64(1)}, "column 'a'"),
        ({"a": np.array(1)}, "column 'a' is the scalar 1"),
        ({"a": {"b": [1]}}, "column 'a'"),
        ({"a": [1, 2], "b": [1], "c": [1, 2]}, "several lengths: 'a' 2, 'b' 1, 'c' 2"),
    ],
)
def test_what_is_no_batch_is_refused(batch, said):
    with pytest.raises(BatchError) as caught:
        block.batch_to_table(batch)
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_a_name_that_two_columns_have_is_refused(kind):
    batch = pa.table([[1], [2], [3]], names=["a", "b", "a"])
    if kind == "pandas":
        pandas = pytest.importorskip("pandas")
        batch = pandas.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    with pytest.raises(BatchError, match="column 'a' is there 2 times"):
        block.batch_to_table(batch)


def test_numpy_batches_are_views_of_the_block_and_read_only():
    table = pa.table({"a": np.arange(10), "t": column_of("t", np.ones((10, 2, 3)))})
    batch = block.table_to_batch(table.slice(2, 5))
    assert batch["a"].tolist() == [2, 3, 4, 5, 6] and batch["t"].shape == (5, 2, 3)
    address = table.column("a").chunk(0).buffers()[1].address
    assert batch["a"].__array_interface__["data"][0] == address + 16
    for array in batch.values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    batch = block.table_to_batch(table, "numpy", zero_copy=False)
    batch["a"][0], batch["t"][0] = 77, 77
    assert table.column("a")[0].as_py() == 0


def test_numpy_batches_of_all_types():
    table = pa.table(
        {
            "null": pa.array([1, None, 3]),
            "text": ["a", None, "c"],
            "bool": [True, False, True],
            "list": [[1], [], [2, 3]],
            "dictionary": pa.array(["x", "y", "x"]).dictionary_encode(),
            "when": pa.array([1, 2, 3], pa.timestamp("us")),
            "struct": [{"a": 1}, {"a": 2}, None],
        }
    )
    table = pa.concat_tables([table, table])
    batch = block.table_to_batch(table)
    assert np.isnan(batch["null"][1]) and batch["null"].dtype == np.float64
    assert batch["text"].tolist() == ["a", None, "c"] * 2
    assert batch["bool"].dtype == bool
    assert batch["list"][2].tolist() == [2, 3]
    assert batch["dictionary"].tolist() == ["x", "y", "x"] * 2
    assert batch["when"].dtype == np.dtype("datetime64[us]")
    assert batch["struct"].tolist() == [{"a": 1}, {"a": 2}, None] * 2


def test_tensors_in_several_chunks_and_in_none():
    table = block.rows_to_table([{"t": np.full((2, 2), n)} for n in range(3)])
    both = block.concat([table.slice(1), table])
    assert block.table_to_batch(both)["t"][:, 0, 0].tolist() == [1, 2, 0, 1, 2]
    assert block.table_to_batch(table.slice(0, 0))["t"].shape == (0, 2, 2)
    assert block.table_to_batch(table.schema.empty_table())["t"].shape == (0, 2, 2)
    several = block.rows_to_table([{"t": np.full(n + 1, n)} for n in range(3)])
    assert [a.tolist() for a in block.table_to_batch(several.slice(1))["t"]] == [[1, 1], [2, 2, 2]]


def test_formats_of_batches():
    pandas = pytest.importorskip("pandas", reason="not installed: pip install pandas")
    polars = pytest.importorskip("polars", reason="not installed: pip install polars")

    table = block.rows_to_table([{"a": n, "t": np.full((2,), n), "o": Thing(n)} for n in range(3)])
    assert (
        block.table_to_batch(table, None) is table
        and block.table_to_batch(table, "pyarrow") is table
    )
    frame = block.table_to_batch(table, "pandas")
    assert isinstance(frame, pandas.DataFrame) and frame["a"].tolist() == [0, 1, 2]
    frame["a"] += 1
    frame = block.table_to_batch(table, "polars")
    assert isinstance(frame, polars.DataFrame) and frame["t"].to_numpy()[2].tolist() == [2, 2]
    assert block.batch_to_table(
        block.table_to_batch(table.select(["a"]), "polars")
    ).to_pydict() == {"a": [0, 1, 2]}
    with pytest.raises(ValueError, match="batch_format='numpi'"):
        block.table_to_batch(table, "numpi")
    assert len(block.table_to_batch(block.empty_rows(3), "pandas")) == 3


def test_the_size_is_that_of_the_slice():
    table = pa.table({"a": np.arange(100_000), "s": ["x" * 10] * 100_000})
    assert block.size_bytes(table.slice(500, 10)) < 1000 < block.size_bytes(table)
    tensors = block.rows_to_table([{"t": np.ones((10, 10))} for _ in range(100)])
    assert 800 <= block.size_bytes(tensors.slice(3, 1)) < 900


def test_tables_of_several_schemas_are_joined():
    joined = block.concat([pa.table({"a": [1]}), pa.table({"b": ["x"], "a": [1.5]})])
    assert joined.to_pydict() == {"a": [1.0, 1.5], "b": [None, "x"]}
    assert block.concat([]).num_rows == 0


def test_strings_over_two_gibibytes_become_large_ones(monkeypatch):
    monkeypatch.setattr(tables, "_LARGEST_OFFSET", 100)
    table = block.concat([pa.table({"s": ["x" * 60], "b": [b"y" * 60]})] * 2)
    combined = block.combine(table)
    assert combined.schema.types == [pa.large_string(), pa.large_binary()]
    assert combined.column("s").num_chunks == 1 and combined.to_pydict() == table.to_pydict()


def test_pickled_tables_keep_their_types():
    table = block.rows_to_table(
        [{"t": np.ones((2, 2)), "v": np.ones(n), "o": Thing(n)} for n in (1, 2)]
    )
    again = pickle.loads(pickle.dumps(table, protocol=5))
    assert again.schema == table.schema
    assert [row["o"] for row in block.table_to_rows(again)] == [Thing(1), Thing(2)]


def test_accessor():
    accessor = block.BlockAccessor.for_block([{"a": n, "b": str(n)} for n in range(5)])
    assert accessor.num_rows() == 5 and accessor.column_names() == ["a", "b"]
    assert accessor.slice(1, 3).to_pydict() == {"a": [1, 2], "b": ["1", "2"]}
    assert accessor.slice(4, 9, copy=True).to_pydict() == {"a": [4], "b": ["4"]}
    assert accessor.take([3, 0]).column("a").to_pylist() == [3, 0]
    assert accessor.select(["b"]).column_names == ["b"]
    assert accessor.rename_columns({"a": "c"}).column_names == ["c", "b"]
    assert accessor.to_numpy("a").tolist() == [0, 1, 2, 3, 4]
    assert set(accessor.to_numpy(["a"])) == {"a"}
    assert accessor.random_shuffle(3).equals(accessor.random_shuffle(3))
    assert sorted(accessor.random_shuffle(3).column("a").to_pylist()) == [0, 1, 2, 3, 4]
    assert accessor.zip(accessor.to_arrow()).column_names == ["a", "b", "a_1", "b_1"]
    metadata = accessor.get_metadata(["x.csv"])
    assert (metadata.num_rows, metadata.input_files) == (5, ["x.csv"]) and metadata.size_bytes > 40
    with pytest.raises(ColumnNotFoundError, match="no column 'aa'; did you mean 'a'"):
        accessor.select(["aa"])
