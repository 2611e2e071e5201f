# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""TFRecords, WebDataset archives and databases, through datasets."""

import sqlite3

import pytest
from sheaf import data

pytestmark = pytest.mark.usefixtures("node")
ROWS = [{"n": i, "s": f"row {i}".encode()} for i in range(100)]


def sorted_rows(dataset):
    return sorted(dataset.take_all(), key=lambda row: row["n"])


def test_tfrecords_there_and_back(tmp_path):
    data.from_items(ROWS).write_tfrecords(str(tmp_path))
    assert sorted_rows(data.read_tfrecords(str(tmp_path))) == ROWS


def test_webdataset_there_and_back(tmp_path):
    rows = [{"__key__": f"{i:03}", "txt": f"row {i}", "cls": i} for i in range(20)]
    data.from_items(rows).write_webdataset(str(tmp_path))
    back = sorted(data.read_webdataset(str(tmp_path)).take_all(), key=lambda row: row["__key__"])
    assert [(row["__key__"], row["txt"], row["cls"]) for row in back] == [
        (row["__key__"], row["txt"], row["cls"]) for row in rows
    ]


def test_a_database_there_and_back(tmp_path):
    path = str(tmp_path / "rows.db")
    with sqlite3.connect(path) as made:
        made.execute("create table rows (n int, s blob)")
    made.close()

    def connect():
        return sqlite3.connect(path, timeout=30)

    data.from_items(ROWS).write_sql("insert into rows values (?, ?)", connect)
    assert sorted_rows(data.read_sql("select * from rows", connect)) == ROWS


def test_elements_of_a_torch_dataset():
    class Squares:  # What from_torch needs of one.
        def __len__(self):
            return 10

        def __getitem__(self, i):
            return i * i

    rows = data.from_torch(Squares()).take_all()
    assert sorted(row["item"] for row in rows) == [i * i for i in range(10)]
