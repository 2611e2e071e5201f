# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The kernels of sheaf.arrow on one core, beside pyarrow, Polars and DuckDB.

    ./do bench arrow [--json FILE] [--rounds N]

The table has 4 million rows, three columns of numbers and one of text: 124 MB. What is measured is
the processor time of the process, user's and system's, of which the best round counts: all use one
thread, and memory that a result lies in is part of it. pyarrow is needed; this Python, or that in
$SHEAF_PEERS/arrow, has it. Polars and DuckDB are left out where they are not installed.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import time

import peer_python

ROWS, PARTS = 4_000_000, 64


def make_table():
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(1)
    words = pa.array([f"w{i:05d}" for i in range(50_000)])
    return pa.table(
        {
            "key": random.integers(0, 100_000, ROWS),
            "x": random.random(ROWS),
            "n": random.integers(0, 1 << 30, ROWS).astype(np.int32),
            "s": words.take(pa.array(random.integers(0, 50_000, ROWS))),
        }
    ).combine_chunks()


def best_of(rounds, work):
    """Milliseconds of the processor."""
    figures = []
    for _ in range(rounds):
        begun = time.process_time()
        kept = work()
        figures.append((time.process_time() - begun) * 1e3)
        del kept
    return min(figures)


def works():
    """{row: {library: what it does}}, for the libraries that are there."""
    os.environ["POLARS_MAX_THREADS"] = "1"  # Read when it is imported.
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from sheaf import arrow

    pa.set_cpu_count(1)
    table = make_table()
    order = pc.sort_indices(table, [("key", "ascending")])
    halves = [table.slice(0, ROWS // 2), table.slice(ROWS // 2)]
    bounds = pa.array(np.linspace(0, 100_000, PARTS + 1).astype(np.int64)[1:-1])

    def by_take():
        part = table["key"].to_numpy() % PARTS
        return table.take(pa.array(np.argsort(part, kind="stable")))

    found = {
        f"partition by a hash, {PARTS} parts": {
            "sheaf": lambda: arrow.partition(table, PARTS, keys="key"),
            "pyarrow": by_take,
        },
        f"partition by the hash of text, {PARTS} parts": {
            "sheaf": lambda: arrow.partition(table, PARTS, keys="s")
        },
        f"partition by ranges, {PARTS} parts": {
            "sheaf": lambda: arrow.partition(table, keys="key", bounds=bounds)
        },
        f"partition at random, {PARTS} parts": {
            "sheaf": lambda: arrow.partition(table, PARTS, seed=1)
        },
        "gather in the order of a sort": {
            "sheaf": lambda: arrow.gather(table, order),
            "pyarrow": lambda: table.take(order),
        },
        "concat of two halves": {
            "sheaf": lambda: arrow.concat(halves),
            "pyarrow": lambda: pa.concat_tables(halves).combine_chunks(),
        },
        "hash of an integer": {"sheaf": lambda: arrow.hash(table, "key")},
    }
    partition = found[f"partition by a hash, {PARTS} parts"]
    gather = found["gather in the order of a sort"]
    if importlib.util.find_spec("polars"):
        import polars as pl

        frame = pl.from_arrow(table)
        rows = pl.Series(order)
        partition["polars"] = lambda: frame.with_columns(
            part=pl.col("key").hash() % PARTS
        ).partition_by("part")
        gather["polars"] = lambda: frame[rows]
    if importlib.util.find_spec("duckdb"):
        import duckdb

        database = duckdb.connect()
        database.execute("SET threads = 1")
        database.register("t", table)
        text = f"SELECT * FROM t ORDER BY hash(key) % {PARTS}"
        partition["duckdb"] = lambda: database.sql(text).to_arrow_table()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    peer_python.go_on_where("pyarrow", "arrow")
    rows = []
    for name, libraries in works().items():
        row = {"name": name, "unit": "ms"}
        for library, work in libraries.items():
            row[library] = best_of(given.rounds, work)
            print(f"{name:40} {library:8} {row[library]:8.1f} ms", flush=True)
        rows.append(row)
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
