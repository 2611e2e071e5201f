# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What ray.data counts, sums, sorts and groups. Groups come in no order: rows are said sorted."""

import datetime
import math

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import data, fails, kinds_of, plain, rows
from program import main, program, say
from ray.data.aggregate import (
    AbsMax,
    AggregateFn,
    AggregateFnV2,
    AsList,
    Count,
    CountDistinct,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Quantile,
    Std,
    Sum,
    Unique,
    ValueCounter,
    ZeroPercentage,
)


def table(**columns):
    return data.from_arrow(pa.table(columns))


def pets():
    return table(k=["a", "b", "a", "b", "c"], v=[1, 2, 3, 4, 5], w=[0.5, None, 1.5, 2.0, None])


@program
def aggregates_of_all():
    ds = pets()
    say(ds.sum("v"), ds.min("v"), ds.max("v"), ds.mean("v"), round(ds.std("v"), 9))
    say(ds.sum(["v", "w"]), ds.max(["v", "w"]))
    say(ds.mean("w"), ds.sum("w"), ds.min("w"), round(ds.std("w"), 9))


@program
def aggregates_of_nothing():
    ds = data.range(3).filter(lambda row: row["id"] > 5)
    say(ds.sum("id"), ds.min("id"), ds.max("id"), ds.mean("id"), ds.std("id"), ds.count())


@program
def aggregates_of_nulls():
    ds = table(v=pa.array([None, None], pa.int64()))
    say(ds.sum("v"), ds.min("v"), ds.mean("v"), ds.std("v"), ds.count())
    ds = table(v=[1, None, 3])
    say(ds.sum("v", ignore_nulls=False), ds.min("v", ignore_nulls=False))
    say(ds.mean("v", ignore_nulls=False), ds.sum("v"))


@program
def aggregates_of_nan():
    ds = table(v=[1.0, math.nan, 3.0])
    say(ds.sum("v"), ds.min("v"), ds.max("v"), ds.mean("v"))


@program
def aggregates_of_one_row():
    ds = table(v=[7])
    say(ds.sum("v"), ds.mean("v"), ds.std("v"), ds.std("v", ddof=0))


@program
def aggregates_of_text():
    ds = table(s=["b", "a", "c"])
    say(ds.min("s"), ds.max("s"))
    fails(lambda: ds.sum("s"))
    fails(lambda: ds.mean("s"))


@program
def aggregates_of_all_columns():
    say(table(a=[1, 2], b=[0.5, 1.5]).sum())
    say(table(a=[1, 2]).max())
    say(data.range(4).sum())


@program
def several_aggregates():
    ds = pets()
    found = ds.aggregate(Count(), Sum("v"), Mean("v"), Max("w"), Min("k"), AbsMax("v"))
    say(plain(found))
    say(plain(ds.aggregate(Sum("v", alias_name="total"), Count(on="w", alias_name="there"))))


@program
def values_that_are_missing():
    ds = table(v=[0, None, 3, 0])
    found = ds.aggregate(MissingValuePercentage("v"), ZeroPercentage("v"), Count("v"))
    say(plain(found))
    say(plain(ds.aggregate(Count("v", ignore_nulls=True), ZeroPercentage("v", ignore_nulls=False))))


@program
def quantiles():
    ds = table(v=[1, 2, 3, 4, 10])
    say(plain(ds.aggregate(Quantile("v"), Quantile("v", q=0.9, alias_name="q90"))))
    say(plain(ds.aggregate(Quantile("v", q=0, alias_name="a"), Quantile("v", q=1, alias_name="b"))))


@program
def distinct_values():
    ds = table(v=[3, 1, 3, None, 2], s=["x", "y", "x", "x", None])
    found = ds.aggregate(Unique("v", ignore_nulls=True), CountDistinct("s"))
    say(sorted(found["unique(v)"]), found["count_distinct(s)"])
    say(plain(ds.aggregate(CountDistinct("s", ignore_nulls=False, alias_name="n"))))


@program
def lists_of_values():
    found = table(v=[3, 1, None]).aggregate(AsList("v"))
    say(plain(found))


@program
def counted_values():
    found = table(v=["x", "y", "x"]).aggregate(ValueCounter("v"))["value_counter(v)"]
    say(sorted(zip(found["values"], found["counts"], strict=True)))


@program
def unique():
    say(sorted(table(v=[3, 1, 3, 2]).unique("v")), sorted(table(s=["b", "a", "b"]).unique("s")))
    say(sorted(table(v=[1, None, 1]).unique("v"), key=repr))
    say(data.range(0).unique("id"))
    fails(lambda: data.range(2).unique("zz"), "zz")


@program
def groups_counted():
    ds = pets().groupby("k").count()
    rows(ds, ordered=False)
    kinds_of(ds)


@program
def groups_summed():
    groups = pets().groupby("k")
    rows(groups.sum("v"), ordered=False)
    rows(groups.sum(["v", "w"]), ordered=False)
    rows(groups.mean("v"), ordered=False)
    rows(groups.min("w"), ordered=False)
    rows(groups.max("w"), ordered=False)


@program
def groups_of_all_columns():
    rows(table(k=[1, 1, 2], a=[1, 2, 3], b=[0.5, 1.0, 2.0]).groupby("k").sum(), ordered=False)


@program
def deviations_of_groups():
    ds = table(k=["a", "a", "a", "b"], v=[1.0, 2.0, 4.0, 5.0])
    for row in sorted(ds.groupby("k").std("v").take_all(), key=lambda row: row["k"]):
        say(row["k"], None if row["std(v)"] is None else round(row["std(v)"], 9))
    for row in sorted(ds.groupby("k").std("v", ddof=0).take_all(), key=lambda row: row["k"]):
        say(row["k"], round(row["std(v)"], 9))


@program
def groups_by_several_columns():
    ds = table(a=[1, 1, 2, 1], b=["x", "y", "x", "x"], v=[1, 2, 3, 4])
    rows(ds.groupby(["a", "b"]).sum("v"), ordered=False)
    rows(ds.groupby(["a", "b"]).count(), ordered=False)


@program
def groups_of_nulls():
    ds = table(k=["a", None, "a", None], v=[1, 2, 3, 4])
    rows(ds.groupby("k").sum("v"), ordered=False)
    rows(ds.groupby("k").count(), ordered=False)


@program
def groups_of_nan():
    ds = table(k=[1.0, math.nan, math.nan], v=[1, 2, 3])
    rows(ds.groupby("k").count(), ordered=False)


@program
def groups_whose_values_are_null():
    ds = table(k=["a", "a", "b"], v=pa.array([1, None, None], pa.int64()))
    rows(ds.groupby("k").sum("v"), ordered=False)
    rows(ds.groupby("k").mean("v"), ordered=False)
    rows(ds.groupby("k").sum("v", ignore_nulls=False), ordered=False)
    rows(ds.groupby("k").aggregate(Count("v", ignore_nulls=True)), ordered=False)


@program
def keys_of_several_types():
    day = datetime.date(2024, 1, 2)
    rows(table(k=[True, False, True], v=[1, 2, 3]).groupby("k").sum("v"), ordered=False)
    rows(table(k=[day, day], v=[1, 2]).groupby("k").sum("v"), ordered=False)
    rows(table(k=[b"x", b"y"], v=[1, 2]).groupby("k").sum("v"), ordered=False)
    rows(table(k=pa.array([1, 1], pa.int8()), v=[1, 2]).groupby("k").sum("v"), ordered=False)


@program
def groups_of_nothing():
    ds = data.range(3).filter(lambda row: row["id"] > 5)
    rows(ds.groupby("id").count())


@program
def groups_with_several_aggregates():
    ds = pets().groupby("k").aggregate(Count(), Sum("v"), Mean("w"), Quantile("v"), Std("v"))
    rows(ds, ordered=False)


@program
def named_results_of_groups():
    ds = pets().groupby("k").aggregate(Sum("v", alias_name="total"), Count(alias_name="n"))
    rows(ds, ordered=False)
    say(sorted(ds.columns()))


@program
def lists_of_groups():
    ds = pets().groupby("k").aggregate(AsList("v"), Unique("w"), CountDistinct("w"))
    for row in sorted(ds.take_all(), key=lambda row: row["k"]):
        say(row["k"], sorted(row["list(v)"]), sorted(row["unique(w)"], key=repr))
        say(row["count_distinct(w)"])


@program
def one_group_of_all():
    rows(pets().groupby(None).sum("v"))
    rows(pets().groupby(None).count())


@program
def many_groups_in_partitions():
    ds = data.range(100, override_num_blocks=4).map_batches(lambda b: {"k": b["id"] % 10})
    rows(ds.groupby("k", num_partitions=3).count(), ordered=False)


@program
def own_aggregates():
    longest = AggregateFn(
        init=lambda key: 0,
        accumulate_row=lambda state, row: max(state, len(row["s"])),
        merge=max,
        finalize=lambda state: state * 10,
        name="longest",
    )
    ds = table(k=[1, 1, 2], s=["a", "bcd", "ef"])
    rows(ds.groupby("k").aggregate(longest), ordered=False)
    say(ds.aggregate(longest))


@program
def own_aggregates_of_blocks():
    total = AggregateFn(
        init=lambda key: 0,
        accumulate_block=lambda state, block: state + len(block),
        merge=lambda a, b: a + b,
        name="rows",
    )
    rows(table(k=[1, 1, 2], v=[1, 2, 3]).groupby("k").aggregate(total), ordered=False)


@program
def own_aggregates_as_classes():
    class Product(AggregateFnV2):
        def __init__(self, on):
            super().__init__(
                name=f"product({on})", zero_factory=lambda: 1, on=on, ignore_nulls=True
            )

        def aggregate_block(self, block):
            return int(np.prod([v.as_py() for v in block.column(self.get_target_column())]))

        def combine(self, current, new):
            return current * new

    rows(pets().groupby("k").aggregate(Product("v")), ordered=False)
    say(plain(pets().aggregate(Product("v"))))


@program
def functions_of_groups():
    def top(batch):
        best = batch["v"].argmax()
        return {"k": batch["k"][best : best + 1], "v": batch["v"][best : best + 1]}

    rows(pets().groupby("k").map_groups(top), ordered=False)


@program
def groups_as_frames():
    def share(frame):
        frame["share"] = frame["v"] / frame["v"].sum()
        return frame[["k", "share"]]

    rows(pets().groupby("k").map_groups(share, batch_format="pandas"), ordered=False)


@program
def groups_as_tables():
    def count(table):
        return pa.table({"k": table["k"][:1], "n": [len(table)]})

    rows(pets().groupby("k").map_groups(count, batch_format="pyarrow"), ordered=False)


@program
def groups_that_give_several_batches():
    def each(batch):
        for value in batch["v"]:
            yield {"v": np.array([value])}

    rows(pets().groupby("k").map_groups(each), ordered=False)


@program
def groups_in_actors():
    class Adds:
        def __init__(self, amount):
            self.amount = amount

        def __call__(self, batch):
            return {"v": batch["v"].sum(keepdims=True) + self.amount}

    ds = (
        pets()
        .groupby("k")
        .map_groups(Adds, batch_format="numpy", fn_constructor_args=(100,), concurrency=1)
    )
    rows(ds, ordered=False)


@program
def what_groups_are():
    rows(pets().groupby(None).map_groups(lambda b: {"kind": [type(b).__name__]}))


@program
def all_rows_are_a_group():
    rows(pets().groupby(None).map_groups(lambda b: {"n": [len(b["v"])]}))


@program
def groups_with_arguments():
    ds = (
        pets()
        .groupby("k")
        .map_groups(
            lambda b, add, *, times: {"v": b["v"] * times + add},
            fn_args=(1,),
            fn_kwargs={"times": 2},
        )
    )
    rows(ds, ordered=False)


@program
def sorts():
    ds = table(v=[3, 1, 2], s=["a", "c", "b"])
    rows(ds.sort("v"))
    rows(ds.sort("s", descending=True))
    rows(data.range(20, override_num_blocks=3).sort("id", descending=True).limit(3))


@program
def sorts_by_several_columns():
    ds = table(a=[1, 2, 1, 2], b=["y", "x", "x", "z"])
    rows(ds.sort(["a", "b"]))
    rows(ds.sort(["a", "b"], descending=True))
    rows(ds.sort(["a", "b"], descending=[False, True]))


@program
def sorts_with_nulls():
    rows(table(v=[2, None, 1]).sort("v"))
    rows(table(v=[2, None, 1]).sort("v", descending=True))
    rows(table(s=["b", None, "a"]).sort("s"))


@program
def sorts_with_nan():
    rows(table(v=[2.0, math.nan, 1.0]).sort("v"))
    rows(table(v=[2.0, math.nan, None, 1.0]).sort("v"))


@program
def sorts_of_nothing():
    rows(data.range(0).sort("id"))
    rows(data.range(3).filter(lambda row: False).sort("id"))


@program
def sorts_with_boundaries():
    ds = data.range(10, override_num_blocks=2).sort("id", boundaries=[3, 7])
    say(
        [len(one) for one in ds.materialize().iter_batches(batch_size=None, batch_format="pyarrow")]
    )
    say([row["id"] for row in ds.take_all()])


@program
def wrong_sorts():
    fails(lambda: data.range(2).sort([]).take_all())
    fails(lambda: data.range(2).sort(5).take_all())
    fails(lambda: data.range(2).sort(["id"], descending=[True, False]).take_all())
    fails(lambda: data.range(2).sort(lambda row: row).take_all())


@program
def sorts_of_dates_and_decimals():
    import decimal

    days = [datetime.date(2024, 1, 2), datetime.date(2023, 1, 2)]
    rows(table(d=days).sort("d"))
    rows(table(d=[decimal.Decimal("1.50"), decimal.Decimal("-0.25")]).sort("d"))
    times = [pd.Timestamp("2024-01-02"), pd.Timestamp("2023-01-02 03:04:05")]
    rows(data.from_pandas(pd.DataFrame({"t": times})).sort("t"))


main()
