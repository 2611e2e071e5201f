# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Values of all types in ray.data: through rows, batches, groups, unions and back."""

import datetime
import decimal
import math

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import data, fails, kinds_of, plain, rows
from program import main, program, say


def table(**columns):
    return data.from_arrow(pa.table(columns))


def through(ds):
    """Says rows before and after a map in a task."""
    rows(ds)
    rows(ds.map(lambda row: row))
    kinds_of(ds.map(lambda row: row))


@program
def dates():
    through(table(d=[datetime.date(2024, 2, 29), None]))


@program
def times_of_day():
    through(table(t=[datetime.time(1, 2, 3), None]))


@program
def moments():
    through(table(t=[datetime.datetime(2024, 2, 29, 1, 2, 3, 4), None]))


@program
def moments_with_zones():
    utc = datetime.UTC
    through(
        table(t=pa.array([datetime.datetime(2024, 1, 1, tzinfo=utc)], pa.timestamp("us", "UTC")))
    )


@program
def moments_of_nanoseconds():
    ds = table(t=pa.array([1, None], pa.timestamp("ns")))
    say(ds.count(), str(ds.schema().types[0]))
    say(plain(ds.take_batch(2)["t"].dtype.name))


@program
def spans_of_time():
    through(table(d=[datetime.timedelta(days=1, seconds=2), None]))


@program
def decimals():
    through(table(d=[decimal.Decimal("1.20"), decimal.Decimal("-3.45"), None]))
    say(table(d=[decimal.Decimal("1.20"), decimal.Decimal("3.45")]).sum("d"))
    rows(data.range(1).map(lambda row: {"d": decimal.Decimal("0.10")}))


@program
def moments_made_by_rows():
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5)
    ds = data.range(1).map(lambda row: {"t": moment, "d": moment.date(), "s": moment - moment})
    rows(ds)
    kinds_of(ds)


@program
def stamps_of_pandas():
    frame = pd.DataFrame({"t": [pd.Timestamp("2024-01-02 03:04:05"), pd.NaT]})
    ds = data.from_pandas(frame)
    rows(ds.map(lambda row: {"kind": type(row["t"]).__name__}))
    say(plain(ds.take_batch(2)["t"].dtype.kind))


@program
def moments_of_numpy():
    stamps = np.array(["2024-01-02", "NaT"], dtype="datetime64[s]")
    ds = data.range(2, override_num_blocks=1).map_batches(lambda b: {"t": stamps})
    rows(ds)
    kinds_of(ds)


@program
def nan_and_null():
    through(table(v=[1.0, math.nan, None]))
    say(table(v=[1.0, math.nan, None]).count())
    say(plain(table(v=[1.0, math.nan, None]).take_batch(3)))


@program
def infinities_and_zeros():
    through(table(v=[math.inf, -math.inf, -0.0, 0.0]))
    rows(table(v=[-0.0, 0.0], n=[1, 2]).groupby("v").sum("n"), ordered=False)


@program
def large_integers():
    through(table(v=[2**63 - 1, -(2**63)]))
    rows(table(v=pa.array([2**64 - 1], pa.uint64())))
    rows(data.range(1).map(lambda row: {"v": 2**62}))
    fails(lambda: data.range(1).map(lambda row: {"v": 2**70}).take_all())


@program
def small_integers_keep_their_type():
    ds = table(
        a=pa.array([1], pa.int8()), b=pa.array([1], pa.uint16()), c=pa.array([1.5], pa.float32())
    )
    kinds_of(ds)
    kinds_of(ds.map_batches(lambda b: b))
    kinds_of(ds.map(lambda row: row))
    say({name: str(column.dtype) for name, column in ds.take_batch(1).items()})


@program
def flags():
    through(table(v=[True, False, None]))
    say(table(v=[True, False, True]).sum("v"))


@program
def text():
    through(table(s=["", "ü", "日本", None, "a\nb", "x" * 50]))


@program
def large_text():
    ds = table(s=pa.array(["a", None], pa.large_string()))
    rows(ds)
    kinds_of(ds)


@program
def bytes_of_all_values():
    through(table(b=[bytes(range(4)), b"", None]))
    rows(data.range(1).map(lambda row: {"b": bytearray(b"xy")}))


@program
def lists():
    through(table(v=[[1, 2], [], None, [None, 3]]))


@program
def lists_of_lists():
    through(table(v=[[[1], [2, 3]], [[]]]))


@program
def lists_of_text():
    through(table(v=[["a", None], []]))
    say(plain(table(v=[["a", "b"], ["c"]]).take_batch(2)))


@program
def structs():
    through(table(v=[{"a": 1, "b": "x"}, {"a": None, "b": None}, None]))


@program
def structs_in_lists():
    through(table(v=[[{"a": 1}], [{"a": 2}, {"a": 3}]]))


@program
def structs_of_different_fields():
    ds = data.from_items([{"v": {"a": 1}}, {"v": {"b": "x"}}], override_num_blocks=1)
    rows(ds)


@program
def maps_of_arrow():
    ds = table(m=pa.array([[("a", 1)], [("b", 2), ("c", 3)]], pa.map_(pa.string(), pa.int64())))
    rows(ds)
    kinds_of(ds)


@program
def dictionaries_of_arrow():
    ds = table(c=pa.array(["x", "y", "x"]).dictionary_encode(), v=[1, 2, 3])
    rows(ds)
    rows(ds.groupby("c").sum("v"), ordered=False)
    rows(ds.sort("c", descending=True))


@program
def categories_of_pandas():
    ds = data.from_pandas(pd.DataFrame({"c": pd.Categorical(["x", "y", "x"])}))
    rows(ds)
    say(plain(ds.take_batch(3)["c"]))


@program
def tensors():
    ds = data.from_numpy(np.arange(8, dtype=np.int16).reshape(2, 2, 2))
    rows(ds)
    rows(ds.map(lambda row: {"sum": int(row["data"].sum()), "shape": list(row["data"].shape)}))
    rows(ds.map_batches(lambda b: {"data": b["data"] * 2}))
    say(plain(ds.take_batch(2)["data"].shape), ds.take_batch(2)["data"].dtype.name)


@program
def tensors_of_different_shapes():
    ds = data.range(3, override_num_blocks=1).map(lambda row: {"t": np.ones((row["id"] + 1, 2))})
    rows(ds)
    batch = ds.take_batch(3)
    say(batch["t"].dtype.name, [one.shape for one in batch["t"]])


@program
def tensors_of_text_and_flags():
    rows(data.range(1).map(lambda row: {"t": np.array([[True, False]])}))
    rows(data.range(1).map(lambda row: {"t": np.array(["a", "bc"])}))


@program
def tensors_beside_columns():
    ds = data.range_tensor(3, shape=(2,)).map_batches(
        lambda b: {"t": b["data"], "n": b["data"].sum(axis=1)}
    )
    rows(ds)
    rows(ds.filter(lambda row: row["n"] > 1))
    rows(ds.sort("n", descending=True))
    rows(ds.union(ds), ordered=False)
    say(ds.repartition(2).count())


@program
def tensors_in_groups():
    ds = data.range(4, override_num_blocks=2).map(
        lambda row: {"k": row["id"] % 2, "t": np.full(2, row["id"])}
    )
    rows(
        ds.groupby("k").map_groups(
            lambda b: {"t": b["t"].sum(axis=0, keepdims=True)}, batch_format="numpy"
        ),
        ordered=False,
    )


@program
def tensors_in_frames():
    frame = data.range_tensor(2, shape=(2,)).to_pandas()
    say([plain(np.asarray(one)) for one in frame["data"]])
    ds = data.range_tensor(2, shape=(2,)).map_batches(lambda f: f, batch_format="pandas")
    rows(ds)


@program
def arrays_in_rows_of_items():
    ds = data.from_items([{"v": np.array([1, 2])}, {"v": np.array([3, 4])}], override_num_blocks=1)
    rows(ds)
    say(plain(ds.take_batch(2)))


@program
def numbers_of_numpy_in_rows():
    row = {"a": np.float32(0.5), "b": np.int8(1), "c": np.bool_(True), "d": np.str_("x")}
    ds = data.from_items([row])
    rows(ds)
    kinds_of(ds)


@program
def objects_of_python():
    class Point:
        def __init__(self, x):
            self.x = x

    ds = data.range(2, override_num_blocks=1).map(lambda row: {"p": Point(row["id"])})
    say([row["p"].x for row in ds.take_all()])
    say(data.from_items([{"s": {1, 2}}]).take_all())


@program
def columns_of_null_only():
    ds = table(v=pa.nulls(2))
    rows(ds)
    kinds_of(ds)
    rows(ds.union(table(v=[1])).sort("v"))


@program
def null_then_values():
    values = [None, 5]
    ds = data.range(2, override_num_blocks=2).map(lambda row: {"v": values[row["id"]]})
    rows(ds)
    rows(ds.map_batches(lambda b: {"n": [len(b["v"])]}, batch_size=2))
    say(ds.sum("v"))


@program
def missing_columns_in_some_blocks():
    ds = data.from_arrow([pa.table({"a": [1]}), pa.table({"a": [2], "b": ["x"]})])
    say(plain(ds.take_batch(2)["a"]))
    say(plain(ds.to_pandas()["a"].tolist()))
    say(ds.sum("a"), ds.count())


@program
def integers_and_floats_in_blocks():
    ds = data.from_arrow([pa.table({"a": [1]}), pa.table({"a": [2.5]})])
    say(ds.sum("a"), ds.max("a"))
    rows(ds.sort("a"))
    say(plain(ds.take_batch(2)))


@program
def numbers_and_text_in_blocks():
    made = [pa.table({"a": [1]}), pa.table({"a": ["x"]})]
    fails(lambda: data.from_arrow(made).sort("a").take_all())
    fails(lambda: data.from_arrow(made).take_batch(2))


@program
def extension_arrays():
    from ray.data.extensions import TensorArray

    frame = pd.DataFrame({"t": TensorArray(np.arange(4).reshape(2, 2)), "v": [1, 2]})
    ds = data.from_pandas(frame)
    rows(ds)
    rows(ds.map_batches(lambda b: {"s": b["t"].sum(axis=1)}))


@program
def complex_numbers():
    fails(lambda: data.range(1).map(lambda row: {"c": 1 + 2j}).take_all())


@program
def names_of_columns():
    names = ["a b", "ü", "x.y", "", "1"]
    ds = data.from_items([dict.fromkeys(names, 1)])
    say(ds.columns())
    rows(ds.select_columns(["a b", "x.y"]))
    say(ds.sum("x.y"))


@program
def names_of_types():
    import ray.data.datatype as types

    kind = types.DataType
    say(kind.int64(), kind.list(kind.string()), kind.struct([("a", kind.bool())]))
    say(kind.from_numpy("float32"), kind.infer_dtype(5), kind.infer_dtype(np.int8(1)), kind(int))
    say(kind.temporal("timestamp", tz="UTC"), kind.temporal("time32"), kind.temporal("date32"))
    say(kind.int64() == kind.from_numpy("int64"), kind.int64().to_numpy_dtype())
    say(kind.int8().is_numerical_type(), kind.string().is_integer_type())
    say(kind.list(kind.int8()).is_of("list"), kind.binary().is_of(types.TypeCategory.TEMPORAL))
    fails(lambda: kind("int64"))
    fails(lambda: kind.temporal("sometimes"))
    fails(lambda: kind.int64().to_python_type())


main()
