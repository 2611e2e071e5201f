# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""TFRecord files of tf.train.Example messages, without TensorFlow: the framing with its checksums,
and as much of protobuf's encoding as the message needs."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from sheaf.data.block import BlockAccessor, rows_to_table, table_to_rows
from sheaf.data.datasource.crc32c import masked
from sheaf.data.datasource.file_based import FileBasedDatasource
from sheaf.data.datasource.file_datasink import BlockBasedFileDatasink
from sheaf.data.errors import BatchError, FileFormatError

__all__ = ["TFRecordDatasink", "TFRecordDatasource", "decode_example", "encode_example"]

_ROWS_AT_ONCE = 4096
_LONGEST = 1 << 31  # A record: of a damaged length, the rest is not read into memory.


def _records(file: Any, path: str) -> Iterator[bytes]:
    """The records of a file; each checksum is looked at."""
    for number in itertools.count(1):
        head = file.read(12)
        if not head:
            return
        where = f"record {number}"
        if len(head) < 12:
            raise FileFormatError(path, f"{where} is cut off")
        (length, check) = struct.unpack("<QI", head)
        if masked(head[:8]) != check or length > _LONGEST:
            raise FileFormatError(
                path, f"{where}: not a TFRecord, or damaged (checksum of its length)"
            )
        data = file.read(length)
        tail = file.read(4)
        if len(data) < length or len(tail) < 4:
            raise FileFormatError(path, f"{where} is cut off")
        if masked(data) != struct.unpack("<I", tail)[0]:
            raise FileFormatError(path, f"{where} is damaged (checksum)")
        yield data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: their numbers, with numbers or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of wire type {kind}")
        if at + length > len(data):
            raise ValueError("a field that is cut off")
        yield key >> 3, data[at : at + length]
        at += length


def _feature(data: bytes) -> list[Any]:
    values: list[Any] = []
    for kind, several in _fields(data):
        for _, value in _fields(several):
            if kind == 1:
                values.append(value)
            elif kind == 2:  # Packed, or one by one.
                values += np.frombuffer(value, "<f4").tolist()
            elif kind == 3:
                values += _integers(value)
    return values


def _integers(value: Any) -> list[int]:
    if isinstance(value, int):
        return [_signed(value)]
    found, at = [], 0
    while at < len(value):
        one, at = _varint(value, at)
        found.append(_signed(one))
    return found


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def decode_example(data: bytes) -> dict[str, Any]:
    """A tf.train.Example as a row: a feature of one value is this value, of none NULL, of several a
    list. Raises ValueError when the bytes are no such message.

    Args:
        data: the message.

    Returns:
        The row, its columns by name.
    """
    row: dict[str, Any] = {}
    try:
        for _, features in _fields(data):
            for _, entry in _fields(features):
                parts = dict(_fields(entry))
                values = _feature(parts.get(2, b""))
                name = bytes(parts[1]).decode()
                row[name] = values if len(values) > 1 else values[0] if values else None
    except (IndexError, TypeError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"not a tf.train.Example: {type(error).__name__}: {error}") from error
    return dict(sorted(row.items()))


def _number(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(data)) + data


def encode_example(row: dict[str, Any]) -> bytes:
    """A row as a tf.train.Example.

    Args:
        row: of numbers, booleans, strings, bytes, lists and arrays of one kind; None is no value.

    Returns:
        The message.

    Raises:
        BatchError: a value is of another kind.
    """
    entries = []
    for name, value in row.items():
        if isinstance(value, np.ndarray):
            value = value.reshape(-1).tolist()
        several = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        entry = _field(1, name.encode()) + _field(2, _encoded(name, several))
        entries.append(_field(1, entry))
    return _field(1, b"".join(entries))


def _encoded(name: str, values: Any) -> bytes:
    kinds = {bool if isinstance(v, bool) else type(v) for v in values}
    if not kinds:
        return b""
    if kinds <= {str, bytes}:
        data = [v.encode() if isinstance(v, str) else v for v in values]
        return _field(1, b"".join(_field(1, one) for one in data))
    if kinds <= {bool, int}:
        return _field(3, _field(1, b"".join(map(_number, values))))
    if kinds <= {bool, int, float}:
        return _field(2, _field(1, np.asarray(values, "<f4").tobytes()))
    found = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise BatchError(f"column '{name}' holds {found}, which a tf.train.Example cannot hold")


class TFRecordDatasource(FileBasedDatasource):
    """TFRecord files of tf.train.Example.

    Args:
        paths: of files or folders.
        tf_schema: has no effect.
        **file_based_datasource_kwargs: as of FileBasedDatasource.
    """

    _FILE_EXTENSIONS = ["tfrecords", "tfrecord", "tfrecords.gz", "tfrecord.gz"]

    def __init__(self, paths: Any, tf_schema: Any = None, **file_based_datasource_kwargs: Any):
        super().__init__(paths, **file_based_datasource_kwargs)

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        records = _records(f, path)
        while part := list(itertools.islice(records, _ROWS_AT_ONCE)):
            yield rows_to_table(_evened([decode_example(data) for data in part]))


def _evened(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Features that are lists in some rows are lists in all."""
    lists = {name for row in rows for name, value in row.items() if isinstance(value, list)}
    for row in rows:
        for name in lists:
            value = row.get(name)
            if not isinstance(value, list):
                row[name] = [] if value is None else [value]
    return rows


class TFRecordDatasink(BlockBasedFileDatasink):
    """TFRecord files of tf.train.Example.

    Args:
        path: of the folder.
        tf_schema: has no effect.
        **file_datasink_kwargs: as of BlockBasedFileDatasink.
    """

    def __init__(self, path: str, *, tf_schema: Any = None, **file_datasink_kwargs: Any):
        super().__init__(path, file_format="tfrecords", **file_datasink_kwargs)

    def write_block_to_file(self, block: BlockAccessor, file: Any) -> None:
        """Writes one block.

        Args:
            block: of rows.
            file: open for writing.
        """
        for row in table_to_rows(block.to_arrow()):
            data = encode_example(row)
            length = struct.pack("<Q", len(data))
            file.write(length + struct.pack("<I", masked(length)))
            file.write(data + struct.pack("<I", masked(data)))
