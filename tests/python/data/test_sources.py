# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Databases, and datasets of other libraries; tensors as Ray stores them in files."""

import functools
import pickle
import sqlite3

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
import pyarrow.csv as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from sheaf import cloudpickle, data  # noqa: E402
from sheaf.data import block  # noqa: E402
from sheaf.data.columns import column_to_numpy  # noqa: E402
from sheaf.data.datasource.foreign import HuggingFaceDatasource, TorchDatasource  # noqa: E402
from sheaf.data.datasource.parquet import ParquetDatasource  # noqa: E402
from sheaf.data.datasource.sql import SQLDatasink, SQLDatasource  # noqa: E402
from sheaf.data.extensions import ArrowTensorArray, ArrowTensorType, ArrowTensorTypeV2  # noqa: E402
from sheaf.data.task_context import TaskContext  # noqa: E402


def rows(source, parallelism=3):
    tasks = pickle.loads(cloudpickle.dumps(source.get_read_tasks(parallelism)))
    return [row for task in tasks for table in task() for row in block.table_to_rows(table)]


def connected(path):
    connection = sqlite3.connect(path)
    connection.create_function("DIGITS", 1, lambda value: value)
    connection.create_function("MOD", 2, lambda a, b: a % b)
    return connection


def test_a_database(tmp_path):
    connect = functools.partial(connected, tmp_path / "db")
    connect().execute("CREATE TABLE t (a INTEGER, s TEXT)")
    sink = pickle.loads(cloudpickle.dumps(SQLDatasink("INSERT INTO t VALUES (?, ?)", connect)))
    want = [{"a": n, "s": str(n)} for n in range(20)]
    sink.write(iter([block.rows_to_table(want[:5]), block.rows_to_table(want[5:])]), TaskContext())
    assert rows(SQLDatasource("SELECT * FROM t ORDER BY a;", connect)) == want
    assert rows(SQLDatasource("SELECT a FROM t WHERE a > ?", connect, sql_params=(17,))) == [
        {"a": 18},
        {"a": 19},
    ]
    spread = SQLDatasource("SELECT * FROM t", connect, "DIGITS", ["a"])
    assert (
        len(spread.get_read_tasks(3)) == 3
        and sorted(rows(spread), key=lambda row: row["a"]) == want
    )
    (empty,) = SQLDatasource("SELECT * FROM t WHERE a > 99", connect).get_read_tasks(1)
    assert next(empty()).column_names == ["a", "s"]
    with pytest.raises(ValueError, match="no name of a function or column"):
        SQLDatasource("SELECT 1", connect, shard_keys=["a); DROP TABLE t"])


def test_inserting_is_all_or_nothing(tmp_path):
    connect = functools.partial(connected, tmp_path / "db")
    connect().execute("CREATE TABLE t (a INTEGER UNIQUE)")
    with pytest.raises(sqlite3.IntegrityError):
        SQLDatasink("INSERT INTO t VALUES (?)", connect).write(
            iter([pa.table({"a": [1, 2, 1]})]), TaskContext()
        )
    assert connect().execute("SELECT count(*) FROM t").fetchone() == (0,)


class Squares:
    """What PyTorch asks of a dataset."""

    def __len__(self):
        return 10

    def __getitem__(self, place):
        return np.full((2,), place * place), place


class Stream:
    def __iter__(self):
        return iter(range(3))


def test_datasets_of_pytorch():
    found = rows(TorchDatasource(Squares()))
    assert [row["item"][1] for row in found] == list(range(10))
    assert rows(TorchDatasource(Stream())) == [{"item": n} for n in range(3)]
    assert len(TorchDatasource(Squares()).get_read_tasks(100)) == 10


def test_datasets_of_hugging_face():
    datasets = pytest.importorskip("datasets", reason="not installed: pip install datasets")
    made = datasets.Dataset.from_dict({"a": list(range(10)), "s": ["x"] * 10})
    assert rows(HuggingFaceDatasource(made)) == [{"a": n, "s": "x"} for n in range(10)]
    assert len(rows(HuggingFaceDatasource(made.to_iterable_dataset()))) == 10


def test_a_dict_of_datasets_is_refused():
    with pytest.raises(ValueError, match=r"choose one of its splits, \['train'\]"):
        HuggingFaceDatasource({"train": 1})


@pytest.mark.parametrize(
    "kind, of", [(ArrowTensorType, pa.list_), (ArrowTensorTypeV2, pa.large_list)]
)
def test_tensors_that_ray_wrote(tmp_path, kind, of):
    storage = pa.array([[1.0, 2, 3, 4], [5, 6, 7, 8]], of(pa.float64()))
    array = pa.ExtensionArray.from_storage(kind((2, 2), pa.float64()), storage)
    pq.write_table(pa.table({"t": array}), tmp_path / "a.parquet")
    found = [row["t"].tolist() for row in rows(ParquetDatasource(str(tmp_path)))]
    assert found == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]] == array.to_numpy().tolist()


def test_tensors_of_users():
    made = ArrowTensorArray.from_numpy(np.ones((3, 2, 2)))
    assert len(made) == 3 and column_to_numpy(made).shape == (3, 2, 2)
    assert len(ArrowTensorArray.from_numpy([np.ones(1), np.ones(2)])) == 2


@pytest.mark.parametrize("read", [data.read_parquet, data.read_csv], ids=lambda f: f.__name__)
def test_files_come_in_another_order_at_each_run(node, tmp_path, read):
    for n in range(12):
        table = pa.table({"i": [n]})
        if read is data.read_csv:
            pc.write_csv(table, tmp_path / f"{n:02}.csv")
        else:
            pq.write_table(table, tmp_path / f"{n:02}.parquet")

    def orders(shuffle):
        rows = read(str(tmp_path), shuffle=shuffle, override_num_blocks=3)
        assert len(rows.input_files()) == 12
        return [[row["i"] for row in rows.take_all()] for _ in range(3)]

    each = [orders("files"), orders(data.FileShuffleConfig(seed=5))]
    for first, second, third in each:
        assert first != second != third != first
        assert sorted(first) == sorted(second) == sorted(third) == list(range(12))
    assert each[0] != orders("files") and each[1] == orders(data.FileShuffleConfig(seed=5))
    same = orders(data.FileShuffleConfig(seed=5, reseed_after_execution=False))
    assert same[0] == same[1] == same[2] != list(range(12))
    assert orders(None) == [list(range(12))] * 3
    few = read(str(tmp_path), shuffle="files").limit(3)
    assert len({tuple(row["i"] for row in few.take_all()) for _ in range(5)}) > 1
    with pytest.raises(ValueError, match="shuffle='rows': want None, 'files' or"):
        read(str(tmp_path), shuffle="rows")
