# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets of things at hand, and what changes their rows and columns."""

import collections

import numpy as np
import pandas as pd
import pyarrow as pa
import ray
from datasets import data, fails, kinds_of, plain, rows
from program import main, program, say


@program
def a_range():
    ds = data.range(5)
    rows(ds)
    kinds_of(ds)
    say(ds.count(), ds.columns(), ds.take(2), ds.take_all()[-1])


@program
def an_empty_range():
    ds = data.range(0)
    rows(ds)
    say(ds.count(), ds.take(3), ds.columns())


@program
def a_range_of_tensors():
    ds = data.range_tensor(3, shape=(2, 2))
    rows(ds)
    kinds_of(ds)


@program
def items_that_are_no_dicts():
    ds = data.from_items([1, 2, 3])
    rows(ds)
    kinds_of(ds)
    rows(data.from_items(["a", "b"]))
    rows(data.from_items([1.5, 2]))


@program
def items_that_are_dicts():
    ds = data.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    rows(ds)
    kinds_of(ds)
    say(ds.count(), ds.columns())


@program
def items_with_different_keys():
    ds = data.from_items([{"a": 1}, {"a": 2, "b": "y"}, {"b": "z"}], override_num_blocks=1)
    rows(ds)


@program
def items_with_none():
    ds = data.from_items([{"a": None, "b": 1}, {"a": 2, "b": None}], override_num_blocks=1)
    rows(ds)
    kinds_of(ds)


@program
def items_that_are_lists():
    ds = data.from_items([[1, 2], [3]], override_num_blocks=1)
    rows(ds)
    kinds_of(ds)


@program
def no_items():
    ds = data.from_items([])
    rows(ds)
    say(ds.count(), ds.schema(), ds.columns())


@program
def blocks_of_items():
    say(data.from_items(list(range(10)), override_num_blocks=3).materialize().num_blocks())
    say(data.from_items([1, 2], override_num_blocks=5).materialize().num_blocks())
    say(data.range(10, override_num_blocks=4).materialize().num_blocks())


@program
def a_data_frame():
    frame = pd.DataFrame({"x": [1, 2], "y": ["a", None], "z": [0.5, float("nan")]})
    ds = data.from_pandas(frame)
    rows(ds)
    say(ds.count(), ds.columns())
    say(plain(ds.to_pandas()))


@program
def several_data_frames():
    ds = data.from_pandas([pd.DataFrame({"x": [1, 2]}), pd.DataFrame({"x": [3]})])
    rows(ds)
    say(ds.num_blocks())


@program
def an_index_is_no_column():
    frame = pd.DataFrame({"x": [1, 2]}, index=["a", "b"])
    rows(data.from_pandas(frame))


@program
def arrow_tables():
    table = pa.table({"x": [1, 2], "y": pa.array(["a", None])})
    ds = data.from_arrow([table, table.slice(1)])
    rows(ds)
    kinds_of(ds)
    say(ds.num_blocks())


@program
def arrays():
    rows(data.from_numpy(np.arange(3)))
    rows(data.from_numpy([np.arange(4).reshape(2, 2), np.ones((1, 2))]))
    kinds_of(data.from_numpy(np.zeros((2, 3, 4), dtype=np.float32)))


@program
def references():
    rows(data.from_arrow_refs([ray.put(pa.table({"x": [1]})), ray.put(pa.table({"x": [2]}))]))
    rows(data.from_pandas_refs(ray.put(pd.DataFrame({"x": [3]}))))
    rows(data.from_numpy_refs([ray.put(np.arange(2))]))


@program
def map_of_rows():
    ds = data.range(4).map(lambda row: {"id": row["id"], "twice": row["id"] * 2})
    rows(ds)
    kinds_of(ds)


@program
def map_changes_its_row():
    def change(row):
        row["id"] += 1
        row["new"] = "x"
        return row

    rows(data.range(3).map(change))


@program
def map_with_arguments():
    ds = data.range(2).map(
        lambda row, add, *, times: {"v": (row["id"] + add) * times},
        fn_args=[1],
        fn_kwargs={"times": 10},
    )
    rows(ds)


@program
def map_with_a_class():
    class Add:
        def __init__(self, amount, *, times=1):
            self.amount, self.times = amount, times

        def __call__(self, row):
            return {"v": (row["id"] + self.amount) * self.times}

    ds = data.range(3).map(
        Add, fn_constructor_args=[5], fn_constructor_kwargs={"times": 2}, concurrency=1
    )
    rows(ds)


@program
def what_rows_are():
    def look(row):
        return {"kind": type(row).__name__, "value": type(row["id"]).__name__}

    rows(data.range(1).map(look))
    rows(data.from_items([{"id": 1.5}]).map(look))
    rows(data.from_items([{"id": "a"}]).map(look))
    rows(data.from_items([{"id": [1]}]).map(look))
    rows(data.from_items([{"id": {"a": 1}}]).map(look))
    rows(data.from_numpy(np.zeros((1, 2))).rename_columns({"data": "id"}).map(look))


@program
def values_of_all_kinds_through_a_map():
    row = {
        "int": 1,
        "float": 0.5,
        "text": "ü",
        "bytes": b"\0\1",
        "flag": True,
        "none": None,
        "list": [1, 2],
        "struct": {"a": 1, "b": [None, "x"]},
        "numpy": np.int16(3),
        "array": np.arange(2, dtype=np.uint8),
    }
    ds = data.range(1).map(lambda _: row)
    rows(ds)
    kinds_of(ds)


@program
def flat_maps():
    rows(data.range(3).flat_map(lambda row: [row] * row["id"]))
    rows(data.range(3).flat_map(lambda row: []))
    rows(data.range(2).flat_map(lambda row: ({"n": n} for n in range(2))))


@program
def filters():
    rows(data.range(6).filter(lambda row: row["id"] % 2 == 0))
    rows(data.range(6).filter(lambda row: False))
    rows(data.range(6).filter(expr="id > 3"))
    rows(data.range(6).filter(lambda row, least: row["id"] >= least, fn_args=[4]))


@program
def a_filter_keeps_the_schema_of_nothing():
    ds = data.range(4).filter(lambda row: row["id"] > 9)
    say(ds.count(), ds.take_all())


@program
def truth_of_filters():
    rows(data.from_items([0, 1, 2]).filter(lambda row: row["item"]))


@program
def further_columns():
    rows(data.range(3).add_column("x", lambda frame: frame["id"] * 2))
    rows(data.range(3).add_column("id", lambda frame: frame["id"] + 1))
    rows(data.range(2).add_column("x", lambda batch: batch["id"] + 1, batch_format="numpy"))
    rows(data.range(2).add_column("x", lambda frame: 7))


@program
def fewer_columns():
    ds = data.from_items([{"a": 1, "b": 2, "c": 3}])
    rows(ds.select_columns(["c", "a"]))
    rows(ds.select_columns("b"))
    rows(ds.drop_columns(["a"]))
    rows(ds.drop_columns(["a", "b"]))


@program
def renamed_columns():
    ds = data.from_items([{"a": 1, "b": 2}])
    rows(ds.rename_columns({"a": "x"}))
    rows(ds.rename_columns(["p", "q"]))
    rows(ds.rename_columns({"a": "b2", "b": "a2"}))


@program
def columns_that_are_not_there():
    ds = data.from_items([{"a": 1, "b": 2}])
    fails(lambda: ds.select_columns(["zz"]).take_all(), "zz")
    fails(lambda: ds.drop_columns(["zz"]).take_all(), "zz")
    fails(lambda: ds.sort("zz").take_all(), "zz")
    fails(lambda: ds.groupby("zz").count().take_all(), "zz")
    fails(lambda: ds.map(lambda row: row["zz"]).take_all(), "zz")


@program
def columns_named_twice():
    ds = data.from_items([{"a": 1, "b": 2}])
    fails(lambda: ds.select_columns(["a", "a"]).take_all())
    fails(lambda: ds.drop_columns(["a", "a"]).take_all())
    fails(lambda: ds.rename_columns({"a": "b"}).take_all())
    fails(lambda: ds.rename_columns(["x", "x"]).take_all())
    fails(lambda: ds.rename_columns(["x"]).take_all())


@program
def limits():
    ds = data.range(10, override_num_blocks=3)
    rows(ds.limit(4))
    say(ds.limit(0).count(), ds.limit(100).count(), ds.limit(3).limit(5).count())
    rows(ds.limit(0))
    rows(ds.map(lambda row: {"v": -row["id"]}).limit(2))


@program
def takes():
    ds = data.range(30)
    say(len(ds.take()), ds.take(1), ds.take(0))
    fails(lambda: ds.take_all(limit=10))
    say(len(ds.take_all(limit=30)))
    say(plain(ds.take_batch(3)))
    say(plain(ds.take_batch(2, batch_format="pandas")))
    fails(lambda: data.range(0).take_batch(2))


@program
def shows(capture=None):
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        data.from_items([{"a": 1, "b": "x"}, {"a": 2, "b": None}]).show(5)
        data.range(30).show()
    lines = out.getvalue().splitlines()
    say(*lines[:3])
    say(len(lines))


@program
def chains():
    ds = (
        data.range(20)
        .map(lambda row: {"v": row["id"] + 1})
        .filter(lambda row: row["v"] % 3 == 0)
        .flat_map(lambda row: [{"v": row["v"]}, {"v": -row["v"]}])
        .limit(5)
    )
    rows(ds)


@program
def datasets_are_lazy():
    calls = []
    ds = data.range(2).map(lambda row: calls.append(1) or row)
    say(len(calls))
    fails(lambda: data.range(2).map(lambda row: 1 / 0).take_all(), "division by zero")
    say(type(data.range(2).map(lambda row: 1 / 0)).__name__, ds.count())


@program
def maps_that_give_no_rows():
    for wrong in (None, 5, "text", [1]):
        fails(lambda wrong=wrong: data.range(1).map(lambda row: wrong).take_all())
    fails(lambda: data.range(1).flat_map(lambda row: {"a": 1}).take_all())
    fails(lambda: data.range(1).flat_map(lambda row: [1]).take_all())


@program
def rows_like_dicts():
    rows(data.range(1).map(lambda row: collections.OrderedDict(b=1, a=2)))
    rows(data.range(1).map(lambda row: {**row, "id": "text"}))
    rows(data.range(2).map(lambda row: {1: row["id"]}))


@program
def types_that_drift_from_row_to_row():
    values = [1, 2.5, None, 3]
    ds = data.range(4, override_num_blocks=1).map(lambda row: {"v": values[row["id"]]})
    rows(ds)


@program
def keys_that_drift_from_row_to_row():
    keys = ["a", "b", "a"]
    ds = data.range(3, override_num_blocks=1).map(lambda row: {keys[row["id"]]: 1})
    rows(ds)


@program
def types_that_drift_from_block_to_block():
    values = [1, 2.5]
    ds = data.range(2, override_num_blocks=2).map(lambda row: {"v": values[row["id"]]})
    rows(ds)
    say(ds.sum("v"))


main()
