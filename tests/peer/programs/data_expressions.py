# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Expressions of ray.data: columns computed and rows chosen without functions of Python."""

import datetime
import math

import pyarrow as pa
import pyarrow.compute as pc
from datasets import data, fails, kinds_of, rows
from program import main, program, say
from ray.data.datatype import DataType
from ray.data.expressions import col, lit, monotonically_increasing_id, pyarrow_udf, star, udf


def table(**columns):
    return data.from_arrow(pa.table(columns))


def numbers():
    return table(a=[1, 2, 3], b=[10, 20, 30])


def shown(ds, **expressions):
    """Says new columns alone."""
    for name, expression in expressions.items():
        ds = ds.with_column(name, expression)
    rows(ds.select_columns(list(expressions)))


@program
def arithmetic():
    shown(numbers(), s=col("a") + col("b"), d=col("b") - 1, m=col("a") * 2, q=col("b") / 4)
    shown(numbers(), f=col("b") // 7, r=1 - col("a"), n=2 * col("a") + lit(1))


@program
def remainders():
    shown(table(a=[7, -7, 8]), r=col("a") % 3, f=col("a") // 2)


@program
def negative_numbers():
    shown(numbers(), n=col("a").negate(), s=col("a").negate().sign())


@program
def comparisons():
    ds = numbers()
    rows(ds.filter(expr=col("a") > 1))
    rows(ds.filter(expr=(col("a") >= 2) & (col("b") < 30)))
    rows(ds.filter(expr=(col("a") == 1) | (col("b") != 20)))
    rows(ds.filter(expr=~(col("a") <= 2)))


@program
def columns_against_columns():
    rows(table(a=[1, 5], b=[3, 3]).filter(expr=col("a") > col("b")))
    rows(table(a=["x", "y"], b=["x", "z"]).filter(expr=col("a") == col("b")))


@program
def nulls_in_expressions():
    ds = table(a=[1, None, 3])
    rows(ds.filter(expr=col("a").is_null()))
    rows(ds.filter(expr=col("a").is_not_null()))
    rows(ds.filter(expr=col("a") > 1))
    shown(ds, s=col("a") + 1, n=col("a").is_null(), c=col("a") > 1)


@program
def nan_in_expressions():
    ds = table(a=[1.0, math.nan, None])
    rows(ds.filter(expr=col("a") == col("a")))
    shown(ds, n=col("a").is_null(), s=col("a") * 2)


@program
def membership():
    ds = table(s=["x", "y", "z", None], v=[1, 2, 3, 4])
    rows(ds.filter(expr=col("s").is_in(["x", "z"])))
    rows(ds.filter(expr=col("v").not_in([1, 2])))


@program
def several_columns_at_once():
    rows(numbers().with_columns({"c": col("a") + 1, "d": col("b") * 2}))


@program
def a_column_in_the_place_of_another():
    rows(numbers().with_column("a", col("a") * 100))
    say(numbers().with_column("a", col("a") * 100).columns())


@program
def constants():
    rows(numbers().with_column("k", lit("x")).limit(2))
    rows(numbers().with_column("k", lit(1.5)).limit(1))
    kinds_of(numbers().with_column("k", lit(True)))


@program
def division():
    shown(table(a=[1, 0, -1], b=[2.0, 0.0, 0.0]), q=col("a") / 2, f=col("a") / col("b"))
    fails(lambda: table(a=[1]).with_column("q", col("a") // 0).take_all())


@program
def types_of_results():
    ds = table(i=pa.array([1], pa.int32()), f=pa.array([0.5], pa.float32()))
    kinds_of(ds.with_column("a", col("i") + 1).with_column("b", col("f") * 2))
    kinds_of(ds.with_column("c", col("i") / 2).with_column("d", col("i") > 0))


@program
def casts():
    ds = table(s=["1", "2"], f=[1.0, 2.0])
    shown(ds, i=col("s").cast(DataType.int64()), t=col("f").cast(DataType.string()))
    fails(lambda: table(s=["x"]).with_column("i", col("s").cast(DataType.int64())).take_all())
    fails(lambda: table(f=[1.5]).with_column("i", col("f").cast(DataType.int64())).take_all())
    shown(table(f=[1.5]), i=col("f").cast(DataType.int64(), safe=False))


@program
def rounding():
    ds = table(v=[1.4, 1.5, -1.5, 2.5])
    shown(ds, r=col("v").round(), c=col("v").ceil(), f=col("v").floor(), t=col("v").trunc())


@program
def functions_of_numbers():
    ds = table(v=[1.0, 4.0])
    shown(ds, e=col("v").exp(), n=col("v").ln(), a=(0 - col("v")).abs())
    shown(ds, s=col("v").sin(), p=col("v").power(2), c=col("v").cos())


@program
def names_of_results():
    rows(numbers().with_column("x", (col("a") + 1).alias("y")))
    rows(numbers().select_columns(["a"]))


@program
def all_columns():
    fails(lambda: numbers().with_column("x", star()).take_all())


@program
def text_functions():
    ds = table(s=[" Ab ", "cd", None])
    shown(ds, u=col("s").str.upper(), l=col("s").str.lower(), n=col("s").str.len())
    shown(ds, t=col("s").str.strip(), c=col("s").str.capitalize(), r=col("s").str.reverse())


@program
def text_tests():
    ds = table(s=["abc", "xbz", "12", None])
    shown(
        ds,
        b=col("s").str.starts_with("a"),
        e=col("s").str.ends_with("z"),
        c=col("s").str.contains("b"),
        d=col("s").str.is_digit(),
    )
    rows(ds.filter(expr=col("s").str.contains("b")))


@program
def text_changes():
    ds = table(s=["a-b", "c-d-e"])
    shown(
        ds,
        r=col("s").str.replace("-", "+"),
        p=col("s").str.split("-"),
        s=col("s").str.slice(0, 2),
        f=col("s").str.find("-"),
    )


@program
def text_padding():
    ds = table(s=["a", "bcd"])
    shown(ds, p=col("s").str.pad(3), z=col("s").str.lpad(3, "*"), c=col("s").str.center(5, "."))


@program
def text_sums():
    shown(table(s=["a", "b"]), p=col("s") + "x", q=lit("<") + col("s"))


@program
def list_functions():
    ds = table(v=[[3, 1], [2], []])
    shown(ds, n=col("v").list.len())
    shown(table(v=[[3, 1], [2, 5]]), f=col("v").list.get(0), i=col("v").list[1])
    shown(table(v=[[3, 1, 2]]), s=col("v").list.slice(0, 2), o=col("v").list.sort())


@program
def struct_functions():
    ds = table(v=[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    shown(ds, a=col("v").struct.field("a"), b=col("v").struct["b"])


@program
def parts_of_dates():
    ds = table(t=[datetime.datetime(2024, 2, 29, 13, 45, 6)])
    shown(
        ds,
        y=col("t").dt.year(),
        m=col("t").dt.month(),
        d=col("t").dt.day(),
        h=col("t").dt.hour(),
        n=col("t").dt.minute(),
        s=col("t").dt.second(),
    )
    shown(ds, f=col("t").dt.strftime("%Y/%m/%d"))


@program
def maps_in_expressions():
    ds = table(m=pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64())))
    shown(ds, k=col("m").map.keys(), v=col("m").map.values())


@program
def functions_of_arrow_columns():
    @pyarrow_udf(return_dtype=DataType.int64())
    def twice(column):
        return pc.multiply(column, 2)

    shown(numbers(), t=twice(col("a")), n=twice(col("a") + 1) + 1)


@program
def functions_of_columns():
    @udf(return_dtype=DataType.int64())
    def add(a, b):
        return pc.add(a, b)

    shown(numbers(), s=add(col("a"), col("b")))


@program
def functions_in_filters():
    @udf(return_dtype=DataType.bool())
    def odd(a):
        return pc.equal(pc.bit_wise_and(a, 1), 1)

    rows(numbers().filter(expr=odd(col("a"))))


@program
def expressions_after_functions():
    ds = numbers().map(lambda row: {"c": row["a"] + row["b"]})
    rows(ds.with_column("d", col("c") + 1).filter(expr=col("d") > 12))


@program
def columns_that_expressions_lack():
    fails(lambda: numbers().with_column("x", col("zz") + 1).take_all(), "zz")
    fails(lambda: numbers().filter(expr=col("zz") > 1).take_all(), "zz")


@program
def wrong_expressions():
    fails(lambda: numbers().with_column("x", 5).take_all())
    fails(lambda: numbers().filter(expr=5).take_all())
    fails(lambda: bool(col("a") > 1))
    fails(lambda: numbers().filter(lambda row: True, expr=col("a") > 1).take_all())
    fails(lambda: table(s=["x"]).with_column("x", col("s") + 1).take_all())
    fails(lambda: numbers().filter().take_all())


@program
def equal_structures():
    say((col("a") + 1).structurally_equals(col("a") + 1))
    say((col("a") + 1).structurally_equals(col("a") + 2))
    say(col("a").structurally_equals(col("b")))
    say(col("a").name, (col("a") + 1).alias("s").name)


@program
def numbered_rows():
    ds = data.range(6, override_num_blocks=2).with_column("n", monotonically_increasing_id())
    found = [row["n"] for row in ds.take_all()]
    say(len(set(found)) == 6, found == sorted(found), found[:3])


@program
def random_columns():
    from ray.data.expressions import random, uuid

    ds = data.range(4, override_num_blocks=1)
    found = [row["r"] for row in ds.with_column("r", random(seed=1)).take_all()]
    say(all(0 <= r < 1 for r in found), len(set(found)))
    say(len({row["u"] for row in ds.with_column("u", uuid()).take_all()}))


@program
def texts_as_expressions():
    ds = table(a=[1, 2, 3], s=["x", "y", None])
    rows(ds.filter(expr="a > 1 and a < 3"))
    rows(ds.filter(expr="s == 'x' or a == 3"))
    rows(ds.filter(expr="not (a == 1)"))
    rows(ds.filter(expr="a in [1, 3]"))
    fails(lambda: ds.filter(expr="a >").take_all())


@program
def expressions_of_groups():
    ds = table(k=["a", "b", "a"], v=[1, 2, 3])
    rows(ds.with_column("w", col("v") * 2).groupby("k").sum("w"), ordered=False)


@program
def empty_tables_in_expressions():
    ds = numbers().filter(expr=col("a") > 100)
    rows(ds.with_column("c", col("a") + 1))
    say(ds.count())


main()
