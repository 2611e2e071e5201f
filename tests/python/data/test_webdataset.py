# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""WebDataset: rows of files in tar archives, there and back, and damaged ones."""

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

from sheaf.data import block  # noqa: E402
from sheaf.data.datasource import WriteResult  # noqa: E402
from sheaf.data.datasource.webdataset import WebDatasetDatasink, WebDatasetDatasource  # noqa: E402
from sheaf.data.errors import BatchError, FileFormatError  # noqa: E402
from sheaf.data.task_context import TaskContext  # noqa: E402

ROWS = [
    {
        "__key__": f"d/{n}",
        "cls": n,
        "json": {"a": n},
        "txt": f"row {n}",
        "npy": np.arange(n + 1),
        "bin": b"\x00",
    }
    for n in range(3)
]


def rows(path, **arguments):
    tasks = WebDatasetDatasource(str(path), **arguments).get_read_tasks(2)
    return [row for task in tasks for table in task() for row in block.table_to_rows(table)]


def write(path, made):
    sink = WebDatasetDatasink(str(path))
    sink.on_write_start()
    returned = sink.write(iter([block.rows_to_table(made)]), TaskContext())
    sink.on_write_complete(WriteResult(0, 0, [returned]))


def test_there_and_back(tmp_path):
    write(tmp_path, ROWS)
    for row, want in zip(rows(tmp_path), ROWS):
        assert row.pop("npy").tolist() == want["npy"].tolist()
        assert row == {name: value for name, value in want.items() if name != "npy"}


def test_what_is_read_of_a_row(tmp_path):
    write(tmp_path, ROWS)
    assert rows(tmp_path, suffixes=["txt"])[1] == {"__key__": "d/1", "txt": "row 1"}
    assert rows(tmp_path, suffixes=["cls"], decoder=None)[1] == {"__key__": "d/1", "cls": b"1"}
    assert rows(tmp_path, suffixes=["json"], expand_json=True)[2] == {"__key__": "d/2", "a": 2}


def test_what_is_damaged_is_named(tmp_path):
    write(tmp_path, [{"cls": "seven"}])
    with pytest.raises(FileFormatError, match=r"\.tar: ValueError: 000000.cls: invalid literal"):
        rows(tmp_path)
    (path,) = tmp_path.glob("*.tar")
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(FileFormatError, match="not a whole tar archive"):
        rows(tmp_path)
    with pytest.raises(BatchError, match="column 'x' holds float"):
        write(tmp_path / "out", [{"x": 1.5}])
