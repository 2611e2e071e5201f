# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets of ray.data beside each other: unions, zips and joins. Joined rows come in no order."""

import pyarrow as pa
from datasets import data, fails, kinds_of, rows
from program import main, program, say


def table(**columns):
    return data.from_arrow(pa.table(columns))


@program
def unions():
    a, b = data.range(2), data.range(3)
    rows(a.union(b))
    rows(a.union(b, a))
    say(a.union(b).count())
    rows(a.union(data.range(0)))


@program
def a_union_of_different_columns():
    a, b = data.from_items([{"a": 1}]), data.from_items([{"b": "x"}])
    rows(a.union(b))


@program
def a_union_of_different_types():
    rows(data.from_items([{"a": 1}]).union(data.from_items([{"a": 0.5}])))
    fails(lambda: data.from_items([{"a": 1}]).union(data.from_items([{"a": "x"}])).take_all())


@program
def zips():
    a = data.range(5, override_num_blocks=2)
    b = data.range(5, override_num_blocks=3).map(lambda row: {"v": row["id"] * 10})
    rows(a.zip(b))
    rows(a.zip(a))
    rows(a.zip(b, b))


@program
def a_zip_of_unequal_lengths():
    fails(lambda: data.range(5).zip(data.range(4)).take_all())


def left():
    return table(id=[1, 2, 3, None], a=["x", "y", "z", "n"])


def right():
    return table(id=[2, 3, 3, 4, None], b=[20, 30, 31, 40, 0])


@program
def joins():
    ds = left().join(right(), join_type="inner", num_partitions=2, on=("id",))
    rows(ds, ordered=False)


@program
def outer_joins():
    for kind in ("left_outer", "right_outer", "full_outer"):
        say(kind)
        rows(left().join(right(), join_type=kind, num_partitions=2, on=("id",)), ordered=False)


@program
def joins_that_only_filter():
    for kind in ("left_semi", "left_anti", "right_semi", "right_anti"):
        say(kind)
        rows(left().join(right(), join_type=kind, num_partitions=2, on=("id",)), ordered=False)


@program
def joins_by_columns_of_other_names():
    other = table(key=[1, 2], b=["p", "q"])
    ds = left().join(other, "inner", num_partitions=1, on=("id",), right_on=("key",))
    rows(ds, ordered=False)


@program
def joins_by_several_columns():
    a = table(x=[1, 1, 2], y=["p", "q", "p"], v=[1, 2, 3])
    b = table(x=[1, 2, 2], y=["p", "p", "q"], w=[10, 20, 30])
    rows(a.join(b, "inner", num_partitions=2, on=("x", "y")), ordered=False)


@program
def joins_of_equal_names():
    a, b = table(id=[1, 2], v=[1, 2]), table(id=[1, 2], v=[10, 20])
    ds = a.join(b, "inner", num_partitions=1, on=("id",), left_suffix="_l", right_suffix="_r")
    rows(ds, ordered=False)
    fails(lambda: a.join(b, "inner", num_partitions=1, on=("id",)).take_all())


@program
def joins_with_nothing():
    nothing = table(id=pa.array([], pa.int64()), b=pa.array([], pa.string()))
    rows(left().join(nothing, "inner", num_partitions=1, on=("id",)), ordered=False)
    rows(left().join(nothing, "left_outer", num_partitions=1, on=("id",)), ordered=False)


@program
def wrong_joins():
    fails(lambda: left().join(right(), "sideways", num_partitions=1, on=("id",)), "sideways")
    fails(lambda: left().join(right(), "inner", num_partitions=0, on=("id",)).take_all())
    fails(lambda: left().join(right(), "inner", num_partitions=1, on=("zz",)).take_all(), "zz")
    other = table(id=["1"], b=[1])
    fails(lambda: left().join(other, "inner", num_partitions=1, on=("id",)).take_all())


@program
def columns_of_joins():
    ds = left().join(right(), "inner", num_partitions=1, on=("id",))
    say(sorted(ds.columns()))
    kinds_of(left().select_columns(["a"]))


@program
def unions_of_many():
    ds = data.range(1).union(*[data.range(2)] * 5)
    say(ds.count(), ds.sum("id"))
    rows(ds.map(lambda row: {"v": row["id"]}).filter(lambda row: row["v"] > 0))


@program
def a_union_of_what_was_changed():
    a = data.range(4).filter(lambda row: row["id"] > 2)
    b = data.range(4).map(lambda row: {"id": -row["id"]}).limit(2)
    rows(a.union(b), ordered=False)
    say(a.union(b).count(), a.union(b).schema().names)


@program
def zips_of_what_was_changed():
    a = data.range(6, override_num_blocks=2).filter(lambda row: row["id"] % 2 == 0)
    b = data.from_items([{"s": "x"}, {"s": "y"}, {"s": "z"}], override_num_blocks=1)
    rows(a.zip(b))


@program
def joins_of_types_that_agree():
    a = table(id=pa.array([1, 2], pa.int32()), v=[1, 2])
    b = table(id=pa.array([2, 3], pa.int64()), w=[3, 4])
    say(len(fails_or_rows(a, b)))


def fails_or_rows(a, b):
    return a.join(b, "inner", num_partitions=1, on=("id",)).take_all()


@program
def joins_of_text():
    a, b = table(id=["x", "y", None], v=[1, 2, 3]), table(id=["y", "y", None], w=[4, 5, 6])
    rows(a.join(b, "inner", num_partitions=2, on=("id",)), ordered=False)
    rows(a.join(b, "full_outer", num_partitions=2, on=("id",)), ordered=False)


@program
def joins_of_many_rows():
    a = data.range(200, override_num_blocks=3).map_batches(
        lambda b: {"id": b["id"], "a": b["id"] * 2}
    )
    b = data.range(100, override_num_blocks=2).map_batches(
        lambda b: {"id": b["id"] * 3, "b": b["id"]}
    )
    for kind in ("inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti"):
        say(kind, a.join(b, kind, num_partitions=3, on=("id",)).count())
    joined = a.join(b, "inner", num_partitions=3, on=("id",))
    say(joined.sum("a"), joined.sum("b"))


@program
def joins_with_lists_and_structs():
    a = table(id=[1, 2], v=[[1], [2, 3]], s=[{"x": 1}, None])
    b = table(id=[1, 3], w=["a", "b"])
    rows(a.join(b, "inner", num_partitions=1, on=("id",)), ordered=False)
    rows(a.join(b, "left_outer", num_partitions=1, on=("id",)), ordered=False)


@program
def what_follows_a_join():
    a, b = table(id=[1, 2, 3], v=[1, 2, 3]), table(id=[1, 2, 2], w=[10, 20, 30])
    joined = a.join(b, "inner", num_partitions=2, on=("id",))
    rows(joined.groupby("id").sum("w"), ordered=False)
    rows(joined.map(lambda row: {"x": row["v"] * row["w"]}).sort("x"))
    say(joined.limit(1).count(), sorted(joined.schema().names))


main()
