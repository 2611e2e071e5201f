# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Columns, filters and limits behind a source reach it: less is read, and the result is the same."""

import datetime
import decimal
import os
import random

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from sheaf import data  # noqa: E402
from sheaf.data import block, errors, plan  # noqa: E402
from sheaf.data.aggregate import Count, Max, Sum  # noqa: E402
from sheaf.data.expressions import col, lit, udf  # noqa: E402
from sheaf.data.optimize import optimized  # noqa: E402

fsspec = pytest.importorskip("fsspec", reason="not installed: pip install fsspec")
from fsspec.implementations.local import LocalFileOpener, LocalFileSystem  # noqa: E402

ROWS, GROUP = 1000, 100


class Counting(LocalFileSystem):
    """The local file system; counts the bytes that are read of files."""

    protocol = "counting"
    cachable = False

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def _open(self, path, mode="rb", **kwargs):
        counter = self

        class Opened(LocalFileOpener):
            def read(self, size=-1):
                found = self.f.read(size)
                counter.bytes += len(found)
                return found

        return Opened(path, mode, fs=self, **kwargs)


@pytest.fixture
def files(tmp_path):
    """A folder with one file of ten row groups of 100 rows; a is 0 to 999, b and c are wide."""
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "a": np.arange(ROWS),
            "b": [rng.bytes(2000) for _ in range(ROWS)],
            "c": rng.random(ROWS),
            "d": pa.array([n % 7 if n % 5 else None for n in range(ROWS)], pa.int32()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=GROUP)
    return str(tmp_path)


def chain(node):
    return [below.described for below in plan.walk(node)]


def explained(dataset):
    """The operators that run, sources first."""
    return chain(optimized(dataset._plan))


def given(node):
    """The rows of a plan of reads and maps, made in this process."""
    if isinstance(node, plan.Read):
        tasks = node.datasource.get_read_tasks(3)
        return [table for task in tasks for table in task()]
    tables = given(node.inputs[0])
    if isinstance(node, plan.Limit):
        return [block.slice_rows(block.concat(tables), 0, node.count)]
    return list(node.transform(iter(tables)))


def check_same(dataset):
    """The optimized plan gives what the plan gives."""
    plain, better = given(dataset._plan), given(optimized(dataset._plan))
    plain, better = block.concat(plain), block.concat(better)
    assert better.schema == plain.schema
    assert repr(better.to_pylist()) == repr(plain.to_pylist())  # As NaN is not NaN.
    return better


def test_selected_columns_alone_are_read(files):
    rows = data.read_parquet(files)
    assert explained(rows.select_columns(["d", "a"])) == ["ReadParquet(columns=['d', 'a'])"]
    assert explained(rows.drop_columns(["b", "c"])) == ["ReadParquet(columns=['a', 'd'])"]
    assert check_same(rows.select_columns(["d", "a"])).column_names == ["d", "a"]
    check_same(rows.drop_columns(["b"]))
    sizes = []
    for dataset in (rows, rows.select_columns(["a"])):
        system = Counting()
        counted = data.read_parquet(files, filesystem=system)
        counted = counted if dataset is rows else counted.select_columns(["a"])
        system.bytes = 0
        given(optimized(counted._plan))
        sizes.append(system.bytes)
    assert sizes[1] * 8 < sizes[0]


def test_inputs_of_expressions_and_aggregates_are_read(files):
    rows = data.read_parquet(files)
    e = rows.with_column("e", col("a") + col("d")).select_columns(["e"])
    assert explained(e) == ["ReadParquet(columns=['a', 'd'])", "WithColumns(e)", "select_columns"]
    check_same(e)
    grouped = rows.groupby("d").aggregate(Sum("a"), Count(), Max("c"))
    assert explained(grouped)[0] == "ReadParquet(columns=['d', 'a', 'c'])"
    ordered = rows.random_shuffle().sort("a").select_columns(["d"])
    assert explained(ordered)[0] == "ReadParquet(columns=['a', 'd'])"
    assert (
        explained(rows.union(rows).select_columns(["c"]))[:2] == ["ReadParquet(columns=['c'])"] * 2
    )
    # What runs code of users may look at all.
    for whole in (rows.map_batches(lambda b: b), rows.filter(lambda row: True)):
        assert explained(whole.select_columns(["a"]))[0] == "ReadParquet"
    assert explained(rows.join(rows, "inner", on="a").select_columns(["a"]))[0] == "ReadParquet"


def test_filters_leave_out_row_groups(files):
    system = Counting()
    rows = data.read_parquet(files, filesystem=system)
    few = rows.filter(col("a") >= 950)
    assert explained(few) == ["ReadParquet(filter=(col('a') >= lit(950)), 1 of 10 row groups)"]
    system.bytes = 0
    assert [row["a"] for row in check_same(few).to_pylist()] == list(range(950, 1000))
    both = system.bytes
    system.bytes = 0
    given(optimized(few._plan))
    assert system.bytes * 4 < both
    narrow = few.filter(col("d").is_null()).select_columns(["c"])
    assert explained(narrow) == [
        "ReadParquet(columns=['c'], filter=((col('a') >= lit(950)) & is_null(col('d'))), "
        "1 of 10 row groups)"
    ]
    assert check_same(narrow).num_rows == 10
    none = rows.filter(expr="a > 5000")
    assert explained(none) == ["ReadParquet(filter=(col('a') > lit(5000)), 0 of 10 row groups)"]
    assert check_same(none).column_names == ["a", "b", "c", "d"]


def test_filters_that_stay_where_they_are(files):
    rows = data.read_parquet(files)
    double = udf()(lambda x: x > 3)
    for stays in (
        rows.filter(col("a") / 2 > 3),  # No kernel of readers.
        rows.filter(double(col("a"))),
        rows.limit(150).filter(col("a") > 120),  # The limit counts rows that the filter drops.
        rows.with_column("a", col("a") + 1).filter(col("a") > 500),
        rows.filter(col("a") > 3, num_cpus=0.5),
    ):
        assert explained(stays)[-1] == "Filter"
        check_same(stays)
    # NaN is not 1.0, though all that statistics know of are.
    pq.write_table(pa.table({"x": [1.0, float("nan")]}), files + "/nan.parquet")
    odd = data.read_parquet(files + "/nan.parquet").filter(col("x") != 1.0)
    assert check_same(odd).num_rows == 1
    with pytest.raises(errors.ColumnNotFoundError, match="no column 'q'"):
        given(optimized(rows.filter(col("q") > 1)._plan))
    with pytest.raises(errors.ColumnNotFoundError, match="select_columns: no column 'q'"):
        given(optimized(rows.select_columns(["q"])._plan))


def test_files_are_left_out_by_their_paths(tmp_path):
    for year in (2024, 2025, 2026):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / f"year={year}" / "a.parquet")
    pq.write_table(pa.table({"y": [3]}), tmp_path / "none.parquet")
    rows = data.read_parquet(str(tmp_path), include_paths=True)
    recent = rows.filter(col("year") >= 2026).select_columns(["x"])
    assert explained(recent) == [
        "ReadParquet(columns=['x'], filter=(col('year') >= lit(2026)), 1 of 4 row groups)"
    ]
    assert check_same(recent).num_rows == 2
    assert check_same(rows.filter(col("year").is_null())).column("y").to_pylist() == [3]
    named = rows.filter(col("path") == str(tmp_path / "none.parquet"))
    assert "1 of 4 row groups" in explained(named)[0] and check_same(named).num_rows == 1
    lacking = rows.filter(col("y").is_null())  # A file without the column has it as NULL.
    assert "3 of 4 row groups" in explained(lacking)[0] and check_same(lacking).num_rows == 6


def test_names_with_dots(tmp_path):
    table = pa.table({"a.b": [1, 2], "a": [{"b": 5, "c": 6}] * 2, "c.d": [7, 8]})
    pq.write_table(table, tmp_path / "t.parquet")
    rows = data.read_parquet(str(tmp_path))
    assert check_same(rows.filter(col("a.b") > 1)).num_rows == 1
    assert check_same(rows.filter(col("c.d") < 7)).num_rows == 0
    assert check_same(rows.filter(col("a").is_null())).num_rows == 0
    assert check_same(rows.select_columns(["a.b"])).to_pydict() == {"a.b": [1, 2]}


def test_a_large_row_group_is_read_a_piece_at_a_time(tmp_path):
    values = np.random.default_rng(1).random(2 << 20)
    columns = dict.fromkeys("abcdefgh", values)  # 128 MiB.
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=len(values))
    (task,) = data.read_parquet(str(tmp_path))._plan.datasource.get_read_tasks(1)
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for table in task():
        rows += table.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == len(values) and most < 80 << 20


def test_limits_read_the_row_groups_that_they_need(files):
    system = Counting()
    rows = data.read_parquet(files, filesystem=system)
    for count, groups in ((0, 1), (1, 1), (100, 1), (101, 2), (550, 6)):
        limited = rows.with_column("e", col("a") * 2).limit(count)
        assert explained(limited)[0] == f"ReadParquet({groups} of 10 row groups)"
        assert check_same(limited).num_rows == count
    assert explained(rows.limit(5000))[0] == "ReadParquet"
    system.bytes = 0
    given(optimized(rows.limit(3)._plan))
    assert system.bytes < 300_000  # Of two million; the end of the file with the footer among them.
    assert explained(rows.filter(lambda row: True).limit(5))[0] == "ReadParquet"
    check_same(rows.filter(col("a") > 300).limit(5))


def test_limits_leave_out_blocks_that_are_there_and_numbers():
    blocks = data.from_blocks([pa.table({"id": [n]}) for n in range(300)])
    for rows in (
        blocks,
        data.range(300, override_num_blocks=300),
        blocks.with_columns({"k": col("id")}),
    ):
        few = rows.limit(3)
        (source,) = (n for n in plan.walk(optimized(few._plan)) if not n.inputs)
        assert plan.known_rows(source) == 3
        assert [row["id"] for row in few.take_all()] == [0, 1, 2]
        assert rows.limit(0).take_all() == [] and rows.limit(1000).count() == 300


def test_a_zip_is_counted_without_rows():
    even = data.range(1000).filter(expr=col("id") % 2 == 0)
    odd = data.range(1000).filter(expr=col("id") % 2 == 1)
    assert even.zip(odd, even).count() == 500
    assert plan.known_rows(data.range(7).zip(data.range(7))._plan) == 7
    for rows in (even.zip(data.range(3)), data.range(500).zip(data.range(3))):
        with pytest.raises(ValueError, match=r"zip: the datasets have \[500, 3\] rows: want equal"):
            rows.count()


def test_count_and_schema_come_from_footers(files):
    system = Counting()
    rows = data.read_parquet(files, filesystem=system)
    system.bytes = 0
    assert rows.count() == ROWS and rows.select_columns(["a"]).limit(10).count() == 10
    assert rows.schema().names == ["a", "b", "c", "d"] == rows.columns()
    assert rows.select_columns(["d"]).schema().names == ["d"]
    assert system.bytes == 0
    assert explained(rows._with(plan.Count((rows._plan,), "Count"))) == [
        "ReadParquet(columns=['d'])",
        "Count",
    ]


def test_explain_shows_what_runs(files, capsys):
    data.read_parquet(files).filter(col("a") < 5).explain()
    assert capsys.readouterr().out == (
        "Filter\n+- ReadParquet\n\n"
        "Optimized:\nReadParquet(filter=(col('a') < lit(5)), 1 of 10 row groups)\n"
    )
    data.read_parquet(files).explain()
    assert capsys.readouterr().out == "ReadParquet\n"


def test_through_a_cluster(node, files):
    rows = data.read_parquet(files)
    few = rows.filter(col("a") >= 950)
    assert few.count() == 50 and few.select_columns(["d"]).count() == 50
    assert rows.filter(lambda row: row["a"] % 2).count() == 500
    assert rows.groupby("d").aggregate(Count(alias_name="n")).sort("d").take(1)[0]["n"] > 100
    assert few.to_pandas()["a"].tolist() == list(range(950, 1000))
    assert rows.filter(col("a") > 5000).to_pandas().columns.tolist() == ["a", "b", "c", "d"]
    assert rows.limit(101).select_columns(["a"]).take_all()[-1] == {"a": 100}


VALUES = {
    "i": (pa.int64(), lambda rng: rng.randrange(-5, 6)),
    "n": (pa.int16(), lambda rng: rng.randrange(-5, 6)),
    "f": (pa.float64(), lambda rng: rng.choice([0.0, -0.0, 1.5, -2.0, float("nan")])),
    "s": (pa.string(), lambda rng: rng.choice(["", "a", "b", "ab" * 40])),
    "y": (pa.binary(), lambda rng: rng.choice([b"", b"a", b"\xff"])),
    "t": (
        pa.timestamp("us", "UTC"),
        lambda rng: datetime.datetime(2026, 1, rng.randrange(1, 9), tzinfo=datetime.UTC),
    ),
    "z": (pa.date32(), lambda rng: datetime.date(2026, 1, rng.randrange(1, 9))),
    "q": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "m": (pa.decimal128(6, 2), lambda rng: decimal.Decimal(rng.randrange(-300, 300)) / 100),
}


def random_filter(rng, names, depth=0):
    if depth < 2 and rng.random() < 0.5:
        a, b = (random_filter(rng, names, depth + 1) for _ in range(2))
        return rng.choice([lambda: a & b, lambda: a | b, lambda: ~a])()
    name = rng.choice(names)
    value = VALUES[name][1](rng)
    kinds = ["<", "<=", ">", ">=", "==", "!=", "null", "valid", "in"]
    kind = rng.choice(kinds)
    if kind in ("null", "valid"):
        return col(name).is_null() if kind == "null" else col(name).is_not_null()
    if kind == "in":
        return col(name).is_in([value, VALUES[name][1](rng)])
    made = {
        "<": lambda: col(name) < lit(value),
        "<=": lambda: col(name) <= lit(value),
        ">": lambda: col(name) > lit(value),
        ">=": lambda: col(name) >= lit(value),
        "==": lambda: col(name) == lit(value),
        "!=": lambda: col(name) != lit(value),
    }
    return made[kind]()


@pytest.mark.parametrize("seed", range(int(os.environ.get("DATA_SEEDS", "3"))))
def test_random_filters_give_the_same(tmp_path, seed):
    rng = random.Random(seed)
    for number in range(2):
        names = sorted(rng.sample(sorted(VALUES), 6)) if number else sorted(VALUES)
        columns = {}
        for name in names:
            kind, make = VALUES[name]
            nulls = rng.choice([0, 0.2, 1])
            values = [None if rng.random() < nulls else make(rng) for _ in range(60)]
            if name in "ist" and rng.random() < 0.7:
                values = sorted(v for v in values if v is not None) + [None] * values.count(None)
            columns[name] = pa.array(values, kind)
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet", row_group_size=7)
    rows = data.read_parquet(str(tmp_path))
    left_out = 0
    for _ in range(15):
        filtered = rows.filter(random_filter(rng, sorted(VALUES)))
        plain, better = (
            block.concat(given(node)) for node in (filtered._plan, optimized(filtered._plan))
        )
        assert better.schema == plain.schema
        assert repr(better.to_pylist()) == repr(plain.to_pylist()), explained(filtered)
        left_out += "row groups" in explained(filtered)[0]
    assert left_out
