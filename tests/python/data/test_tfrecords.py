# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""TFRecord files: there and back, as TensorFlow writes them, and damaged ones."""

import os

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="not installed: pip install pyarrow")

import pyarrow as pa  # noqa: E402
from sheaf.data import block  # noqa: E402
from sheaf.data.datasource import WriteResult  # noqa: E402
from sheaf.data.datasource.crc32c import crc32c, masked  # noqa: E402
from sheaf.data.datasource.tfrecords import (  # noqa: E402
    TFRecordDatasink,
    TFRecordDatasource,
    decode_example,
    encode_example,
)
from sheaf.data.errors import BatchError, FileFormatError  # noqa: E402
from sheaf.data.task_context import TaskContext  # noqa: E402


def rows(path):
    tasks = TFRecordDatasource(str(path)).get_read_tasks(2)
    return [row for task in tasks for table in task() for row in block.table_to_rows(table)]


def write(path, *tables):
    sink = TFRecordDatasink(str(path))
    sink.on_write_start()
    sink.on_write_complete(WriteResult(0, 0, [sink.write(iter(tables), TaskContext())]))


def slow_crc32c(data):
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def test_checksums():
    assert crc32c(b"123456789") == 0xE3069283 and crc32c(b"") == 0  # Of the standard, RFC 3720.
    assert crc32c(bytes(32)) == 0x8A9136AA
    for size in (1, 255, 256, 257, 1000, 1024):
        data = os.urandom(size)
        assert crc32c(data) == slow_crc32c(data)


def test_the_framing_that_tensorflow_writes():
    # The head of a record of 24 bytes, as tf.io.TFRecordWriter has it.
    assert masked((24).to_bytes(8, "little")) == int.from_bytes(bytes.fromhex("a37f4b22"), "little")


def test_there_and_back(tmp_path):
    want = [
        {"b": b"\x00\xff", "f": 1.5, "i": -3, "l": [1, 2, 3], "s": "text"},
        {"b": b"", "f": -2.0, "i": 2**62, "l": [4], "s": ""},
    ]
    write(tmp_path, block.rows_to_table(want))
    assert rows(tmp_path) == [{**row, "s": row["s"].encode()} for row in want]


def test_arrays_booleans_and_nothing():
    row = {"t": np.arange(4.0).reshape(2, 2), "y": True, "n": None, "e": []}
    assert decode_example(encode_example(row)) == {
        "e": None,
        "n": None,
        "t": [0.0, 1.0, 2.0, 3.0],
        "y": 1,
    }
    with pytest.raises(BatchError, match="column 'x' holds dict, which"):
        encode_example({"x": {"a": 1}})


def test_numbers_one_by_one():
    """Writers need not pack them."""
    feature = b"\x1a\x04\x08\x05\x08\x06"
    entry = b"\x0a\x01i\x12" + bytes([len(feature)]) + feature
    assert decode_example(
        b"\x0a" + bytes([len(entry) + 2]) + b"\x0a" + bytes([len(entry)]) + entry
    ) == {"i": [5, 6]}


def test_damaged_files_name_the_record(tmp_path):
    write(tmp_path, pa.table({"i": [1, 2, 3]}))
    (path,) = tmp_path.glob("*.tfrecords")
    data = path.read_bytes()
    record = len(data) // 3
    for bad, said in (
        (data[:-3], "record 3 is cut off"),
        (data[: record + 5], "record 2 is cut off"),
        (data[: record + 14] + b"\xff" + data[record + 15 :], "record 2 is damaged"),
        (data[:2] + b"\xff" + data[3:], "record 1: not a TFRecord"),
        (b"hello, this is text", "record 1: not a TFRecord"),
    ):
        path.write_bytes(bad)
        with pytest.raises(FileFormatError, match=said):
            rows(tmp_path)
    path.write_bytes(b"")
    assert rows(tmp_path) == []


def test_random_bytes_are_refused_and_nothing_else():
    random = np.random.default_rng(1)
    good = encode_example({"a": [1, 2], "b": b"xyz", "c": 1.5})
    for _ in range(2000):
        data = bytearray(good)
        for place in random.integers(0, len(data), 3):
            data[place] = random.integers(256)
        try:
            decode_example(bytes(data))
        except ValueError:
            pass
