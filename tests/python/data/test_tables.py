# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""ORC and Avro files, and tables of Delta Lake, Iceberg and Lance, written by their own
libraries."""

import datetime
import decimal
import sys

import pyarrow as pa
import pytest
import sheaf
from pyarrow import orc
from sheaf import data
from sheaf.data.errors import ColumnNotFoundError, FileFormatError
from sheaf.data.expressions import col

pytestmark = pytest.mark.usefixtures("node")
ROWS = [{"n": i, "s": f"row {i}", "part": "ab"[i % 2]} for i in range(1000)]


def in_order(dataset):
    return sorted(dataset.take_all(), key=lambda row: row["n"])


# ORC.


def test_files_of_orc_are_read_a_stripe_at_a_time(tmp_path):
    table = pa.table(
        {
            "n": pa.array(range(20_000), pa.int32()),
            "when": pa.array([datetime.date(2026, 1, 1)] * 20_000),
            "tags": [["x", None]] * 20_000,
        }
    )
    orc.write_table(table, tmp_path / "a.orc", stripe_size=65536)
    orc.write_table(table.slice(0, 0), tmp_path / "b.orc")
    (tmp_path / "c.txt").write_text("not asked for")
    assert orc.ORCFile(tmp_path / "a.orc").nstripes > 1
    found = data.read_orc(str(tmp_path)).materialize()
    assert found.schema().base_schema.equals(table.schema)
    assert pa.concat_tables(sheaf.get(found.to_arrow_refs())).equals(table)


def test_a_file_that_is_no_orc_is_named(tmp_path):
    (tmp_path / "bad.orc").write_bytes(b"ORC and nothing else")
    with pytest.raises(FileFormatError, match=r"bad\.orc"):
        data.read_orc(str(tmp_path)).take_all()


# Avro.

SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "list", "type": {"type": "array", "items": ["null", "long"]}},
        {
            "name": "inner",
            "type": {
                "type": "record",
                "name": "Inner",
                "fields": [{"name": "kind", "type": "Kind"}, {"name": "f", "type": "float"}],
            },
        },
        {"name": "when", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "money",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "either", "type": ["long", "string"]},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 2}},
    ],
}


def avro_row(i):
    return {
        "n": i,
        "s": None if i % 3 else f"row {i}",
        "kind": "AB"[i % 2],
        "more": {"x": i / 2},
        "list": [i, None],
        "inner": {"kind": "A", "f": 0.5},
        "when": datetime.datetime(2026, 1, 1, 12, 0, i % 60, tzinfo=datetime.UTC),
        "money": decimal.Decimal("12.34"),
        "either": i,
        "id": b"ab",
    }


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_files_of_avro_have_the_types_that_they_say(tmp_path, codec):
    fastavro = pytest.importorskip("fastavro")
    rows = [avro_row(i) for i in range(5000)]
    for number in range(2):
        with open(tmp_path / f"{number}.avro", "wb") as file:
            part = rows[number * 2500 : (number + 1) * 2500]
            fastavro.writer(file, fastavro.parse_schema(SCHEMA), part, codec=codec)
    found = data.read_avro(str(tmp_path)).materialize()
    assert found.schema().base_schema.equals(
        pa.schema(
            {
                "n": pa.int32(),
                "s": pa.string(),
                "kind": pa.string(),
                "more": pa.map_(pa.string(), pa.float64()),
                "list": pa.list_(pa.int64()),
                "inner": pa.struct({"kind": pa.string(), "f": pa.float32()}),
                "when": pa.timestamp("us", "UTC"),
                "money": pa.decimal128(9, 2),
                "either": pa.int64(),
                "id": pa.binary(2),
            }
        )
    )
    back = pa.concat_tables(sheaf.get(found.to_arrow_refs())).to_pylist()
    assert back == [{**row, "more": list(row["more"].items())} for row in rows]


def test_an_avro_file_without_rows_keeps_its_columns(tmp_path):
    fastavro = pytest.importorskip("fastavro")
    with open(tmp_path / "none.avro", "wb") as file:
        fastavro.writer(file, fastavro.parse_schema(SCHEMA), [])
    found = data.read_avro(str(tmp_path / "none.avro")).materialize()
    assert found.count() == 0 and found.columns() == [field["name"] for field in SCHEMA["fields"]]


def test_a_truncated_avro_file_is_named(tmp_path):
    fastavro = pytest.importorskip("fastavro")
    with open(tmp_path / "cut.avro", "wb") as file:
        fastavro.writer(file, fastavro.parse_schema(SCHEMA), [avro_row(i) for i in range(1000)])
    content = (tmp_path / "cut.avro").read_bytes()
    for size in (3, len(content) // 2):
        (tmp_path / "cut.avro").write_bytes(content[:size])
        with pytest.raises(FileFormatError, match=r"cut\.avro"):
            data.read_avro(str(tmp_path)).take_all()


# Tables that transactions change.


def test_a_table_of_delta(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    path = str(tmp_path / "table")
    half = pa.Table.from_pylist(ROWS[:500])
    deltalake.write_deltalake(path, half, partition_by=["part"])
    deltalake.write_deltalake(path, pa.Table.from_pylist(ROWS[500:]), mode="append")
    assert in_order(data.read_delta(path)) == ROWS
    assert in_order(data.read_delta(path, version=0)) == ROWS[:500]
    ds = data.read_delta(path, override_num_blocks=3)
    deltalake.DeltaTable(path).delete("n >= 10")
    assert in_order(ds) == ROWS  # The version that was there.
    assert in_order(data.read_delta(path)) == ROWS[:10]
    assert in_order(data.read_delta(path, columns=["n"])) == [{"n": i} for i in range(10)]
    some = data.read_delta(path).filter(expr=col("part") == "b").select_columns(["n", "part"])
    assert in_order(some) == [{"n": i, "part": "b"} for i in range(1, 10, 2)]
    with pytest.raises(ColumnNotFoundError, match="nn"):
        data.read_delta(path, columns=["nn"])


def test_a_table_of_lance(tmp_path):
    lance = pytest.importorskip("lance")
    path = str(tmp_path / "table.lance")
    lance.write_dataset(pa.Table.from_pylist(ROWS), path, max_rows_per_file=300)
    ds = data.read_lance(path)
    assert ds.count() == 1000
    lance.write_dataset(pa.Table.from_pylist(ROWS[:3]), path, mode="overwrite")
    assert in_order(ds) == ROWS
    assert in_order(data.read_lance(path)) == ROWS[:3]
    assert in_order(data.read_lance(path, version=1, columns=["n"], filter="n >= 998")) == [
        {"n": 998},
        {"n": 999},
    ]
    assert data.read_lance(path, version=1, filter="n < 5").count() == 5


def test_a_table_of_iceberg(tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog")
    pytest.importorskip("sqlalchemy")
    where = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    catalog = catalogs.load_catalog("own", **where)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.rows", schema=pa.Table.from_pylist(ROWS).schema)
    name = {"table_identifier": "shop.rows", "catalog_kwargs": {"name": "own", **where}}
    assert data.read_iceberg(**name).count() == 0
    table.append(pa.Table.from_pylist(ROWS[:500]))
    first = table.current_snapshot().snapshot_id
    table.append(pa.Table.from_pylist(ROWS[500:]))
    ds = data.read_iceberg(**name, override_num_blocks=2)
    assert ds.count() == 1000 and in_order(ds) == ROWS
    table.delete("n >= 10")
    assert in_order(data.read_iceberg(**name)) == ROWS[:10]
    assert in_order(data.read_iceberg(**name, snapshot_id=first)) == ROWS[:500]
    some = data.read_iceberg(**name, row_filter="n > 7", selected_fields=("s", "n"))
    assert in_order(some) == [{"s": f"row {i}", "n": i} for i in (8, 9)]


@pytest.mark.parametrize(
    ("name", "module", "package", "given"),
    [
        ("read_avro", "fastavro", "fastavro", {"paths": "x.avro"}),
        ("read_delta", "deltalake", "deltalake", {"path": "x"}),
        ("read_iceberg", "pyiceberg.catalog", "pyiceberg", {"table_identifier": "a.b"}),
        ("read_lance", "lance", "pylance", {"uri": "x"}),
    ],
)
def test_a_library_that_is_not_there_is_named(monkeypatch, name, module, package, given):
    monkeypatch.setitem(sys.modules, module, None)  # As if it were not installed.
    with pytest.raises(ImportError, match=f"{name} needs .*pip install .*{package}"):
        getattr(data, name)(**given)
