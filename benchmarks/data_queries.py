# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Queries 1, 3, 6 and 13 of TPC-H, for bench_data.py: by methods of Dataset, and in SQL."""

import datetime
import json
import pathlib
import time

QUERIES = {
    "Q1": """select l_returnflag, l_linestatus, sum(l_quantity) qty, sum(l_extendedprice) base,
        sum(l_extendedprice * (1 - l_discount)) price,
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) charge,
        avg(l_quantity) avg_qty, avg(l_discount) avg_disc, count(*) n
        from lineitem where l_shipdate <= date '1998-09-02'
        group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus""",
    "Q3": """select l_orderkey, sum(l_extendedprice * (1 - l_discount)) revenue, o_orderdate,
        o_shippriority from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
        and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority
        order by revenue desc, o_orderdate limit 10""",
    "Q6": """select sum(l_extendedprice * l_discount) revenue from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
        and l_discount between 0.0499 and 0.0701 and l_quantity < 24""",
    "Q13": """select c_count, count(*) n from (
        select c_custkey, count(o_orderkey) c_count from customer left join orders
        on c_custkey = o_custkey and o_comment not like '%special%requests%' group by c_custkey)
        group by c_count order by n desc, c_count desc""",
}


def _q1(bench, col):
    agg = bench.named("aggregate")
    ds = bench.read(
        "lineitem",
        [
            "l_returnflag",
            "l_linestatus",
            "l_quantity",
            "l_extendedprice",
            "l_discount",
            "l_tax",
            "l_shipdate",
        ],
    ).filter(expr=col("l_shipdate") <= datetime.date(1998, 9, 2))
    ds = ds.with_column("price", col("l_extendedprice") * (1 - col("l_discount")))
    ds = ds.with_column("charge", col("price") * (1 + col("l_tax")))
    keys = ["l_returnflag", "l_linestatus"]
    made = ds.groupby(keys).aggregate(
        *(agg.Sum(name) for name in ("l_quantity", "l_extendedprice", "price", "charge")),
        *(agg.Mean(name) for name in ("l_quantity", "l_discount")),
        agg.Count(),
    )
    return [
        (row["l_returnflag"], row["l_linestatus"], row["sum(charge)"], row["count()"])
        for row in made.sort(keys).take_all()
    ]


def _q3(bench, col):
    day = datetime.date(1995, 3, 15)
    customers = bench.read("customer", ["c_custkey", "c_mktsegment"])
    customers = customers.filter(expr=col("c_mktsegment") == "BUILDING").select_columns("c_custkey")
    orders = bench.read("orders", ["o_orderkey", "o_custkey", "o_orderdate", "o_shippriority"])
    orders = orders.filter(expr=col("o_orderdate") < day)
    lines = bench.read("lineitem", ["l_orderkey", "l_extendedprice", "l_discount", "l_shipdate"])
    lines = lines.filter(expr=col("l_shipdate") > day).with_column(
        "revenue", col("l_extendedprice") * (1 - col("l_discount"))
    )
    chosen = orders.join(
        customers, "inner", num_partitions=4, on=("o_custkey",), right_on=("c_custkey",)
    )
    both = lines.select_columns(["l_orderkey", "revenue"]).join(
        chosen, "inner", num_partitions=8, on=("l_orderkey",), right_on=("o_orderkey",)
    )
    made = both.groupby(["l_orderkey", "o_orderdate", "o_shippriority"]).sum("revenue")
    best = made.sort(["sum(revenue)", "o_orderdate"], descending=[True, False]).limit(10)
    return [(row["l_orderkey"], row["sum(revenue)"]) for row in best.take_all()]


def _q6(bench, col):
    names = ["l_shipdate", "l_discount", "l_quantity", "l_extendedprice"]
    day = col("l_shipdate")
    ds = bench.read("lineitem", names).filter(
        expr=(day >= datetime.date(1994, 1, 1))
        & (day < datetime.date(1995, 1, 1))
        & (col("l_discount") >= 0.0499)
        & (col("l_discount") <= 0.0701)
        & (col("l_quantity") < 24)
    )
    return [(ds.with_column("revenue", col("l_extendedprice") * col("l_discount")).sum("revenue"),)]


def _q13(bench, col):
    agg = bench.named("aggregate")
    orders = bench.read("orders", ["o_orderkey", "o_custkey", "o_comment"])
    orders = orders.filter(expr=~col("o_comment").str.match_regex("special.*requests"))
    joined = bench.read("customer", ["c_custkey"]).join(
        orders.select_columns(["o_orderkey", "o_custkey"]),
        "left_outer",
        num_partitions=8,
        on=("c_custkey",),
        right_on=("o_custkey",),
    )
    counts = joined.groupby("c_custkey").aggregate(
        agg.Count("o_orderkey", ignore_nulls=True, alias_name="c_count")
    )
    made = counts.groupby("c_count").aggregate(agg.Count(alias_name="n"))
    rows = made.sort(["n", "c_count"], descending=True).take_all()
    return [(row["c_count"], row["n"]) for row in rows]


_METHODS = {"Q1": _q1, "Q3": _q3, "Q6": _q6, "Q13": _q13}
_COMPARED = {"Q1": (0, 1, 5, 8), "Q3": (0, 1), "Q6": (0,), "Q13": (0, 1)}  # Columns of both.


def answers(connection):
    """The compared columns of all answers, by DuckDB, for the file that `same` reads."""
    return {
        name: [[row[k] for k in _COMPARED[name]] for row in connection.execute(query).fetchall()]
        for name, query in QUERIES.items()
    }


def same(name, found, bench):
    """Checks an answer."""
    want = json.loads(pathlib.Path(bench.folder, "answers.json").read_text())[name]
    assert len(found) == len(want), (found[:3], want[:3])
    for one, other in zip(found, want, strict=True):
        for a, b in zip(one, other, strict=True):
            close = abs(a - b) <= 1e-6 * abs(b) if isinstance(b, float) else a == b
            assert close, (name, one, other)


def by_methods(name, bench):
    """Seconds that it takes by methods of Dataset; the answer is checked."""
    col = bench.named("expressions").col
    began = time.perf_counter()
    found = _METHODS[name](bench, col)
    spent = time.perf_counter() - began
    same(name, found, bench)
    return spent


def by_sql(name, bench):
    """Seconds of sheaf.data.sql."""
    began = time.perf_counter()
    tables = {table: bench.read(table) for table in ("lineitem", "orders", "customer")}
    rows = bench.data.sql(
        QUERIES[name], **{t: ds for t, ds in tables.items() if t in QUERIES[name]}
    )
    found = [tuple(row.values()) for row in rows.take_all()]
    spent = time.perf_counter() - began
    same(name, [tuple(row[k] for k in _COMPARED[name]) for row in found], bench)
    return spent


def by_duckdb(name, bench):
    """Seconds of DuckDB over the same files."""
    connection = bench.duckdb
    began = time.perf_counter()
    connection.execute(QUERIES[name]).fetchall()
    return time.perf_counter() - began
