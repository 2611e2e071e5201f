# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How Arrow data travels: the schema in the pickle, the bytes of the columns outside it, cut to
what the slice in hand shows (pyarrow's own pickle takes the buffers of the whole table along). Who
reads it gets views of the object's memory, which they pin.

Columns of numbers, booleans, times, decimals, strings and binaries go as they lie. All others
(nested ones, dictionaries, extension types, views, run-end encoded ones) go through Arrow's IPC
format, in one buffer for all of them.

pyarrow is imported by those who have such values; here only once one has come."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

# In which the classes of such values are.
MODULES = ("pyarrow.lib", "polars.dataframe.frame")

# Of a chunk: length, null count, offset, buffers.
_Chunk = tuple[int, int, int, list[Any]]

_kinds: dict[Any, tuple[str, int] | None] = {}


def reducer_of(kind: type) -> Callable[[Any], Any] | None:
    """What reduces instances of `kind`, a class of these modules, for pickle; None: pickle does."""
    if kind.__module__ == "polars.dataframe.frame":
        return _reduce_polars if kind.__name__ == "DataFrame" else None
    import pyarrow

    if issubclass(kind, pyarrow.Table):
        return _reduce_table
    if issubclass(kind, pyarrow.RecordBatch):
        return _reduce_batch
    if issubclass(kind, pyarrow.ChunkedArray):
        return _reduce_chunked
    if issubclass(kind, pyarrow.Array):
        return _reduce_array
    return None


def _kind_of(data_type: Any) -> tuple[str, int] | None:
    """How the buffers of a type lie: ("fixed", bytes of a value), ("bits", 0), ("var", bytes of an
    offset); None: otherwise."""
    try:
        return _kinds[data_type]
    except KeyError:
        pass
    import pyarrow

    types = pyarrow.types
    kind: tuple[str, int] | None = None
    if isinstance(data_type, pyarrow.BaseExtensionType) or types.is_dictionary(data_type):
        kind = None
    elif types.is_boolean(data_type):
        kind = ("bits", 0)
    elif (
        types.is_primitive(data_type)
        or types.is_decimal(data_type)
        or types.is_fixed_size_binary(data_type)
    ):
        kind = ("fixed", data_type.bit_width // 8) if data_type.bit_width else None
    elif types.is_string(data_type) or types.is_binary(data_type):
        kind = ("var", 4)
    elif types.is_large_string(data_type) or types.is_large_binary(data_type):
        kind = ("var", 8)
    if len(_kinds) < 1000:  # Types of a program are few; those of one that makes them are not kept.
        _kinds[data_type] = kind
    return kind


def _cut(buffer: Any, begin: int, end: int) -> Any:
    if begin == 0 and end >= buffer.size:
        return pickle.PickleBuffer(buffer)
    return pickle.PickleBuffer(buffer.slice(begin, end - begin))


def _chunk_of(array: Any, kind: tuple[str, int]) -> _Chunk:
    length, offset = len(array), array.offset
    nulls = array.null_count
    buffers = array.buffers()
    rest = offset % 8  # The validity bits begin at a byte.
    begin, end = offset - rest, offset + length
    if length == 0:
        return 0, 0, 0, [None, *[pickle.PickleBuffer(b"\0" * 8) for _ in buffers[1:]]]
    out = [None if nulls == 0 else _cut(buffers[0], begin // 8, (end + 7) // 8)]
    form, width = kind
    if form == "fixed":
        out.append(_cut(buffers[1], begin * width, end * width))
    elif form == "bits":
        out.append(_cut(buffers[1], begin // 8, (end + 7) // 8))
    else:
        import numpy

        offsets = numpy.frombuffer(buffers[1], f"<i{width}", end + 1)[begin:]
        first, last = int(offsets[rest]), int(offsets[-1])
        if first != 0:
            offsets = numpy.maximum(offsets - first, 0)  # Those before the slice are not looked at.
        out.append(pickle.PickleBuffer(offsets))
        data = buffers[2]
        out.append(pickle.PickleBuffer(b"") if data is None else _cut(data, first, last))
    return length, nulls, rest, out


def _chunks_of(column: Any, kind: tuple[str, int]) -> list[_Chunk]:
    return [_chunk_of(chunk, kind) for chunk in column.chunks]


def _array(data_type: Any, chunk: _Chunk) -> Any:
    import pyarrow

    length, nulls, offset, buffers = chunk
    wrapped = [None if buffer is None else pyarrow.py_buffer(buffer) for buffer in buffers]
    return pyarrow.Array.from_buffers(data_type, length, wrapped, nulls, offset)


def _ipc(table: Any) -> pickle.PickleBuffer:
    """A table in Arrow's stream format."""
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pickle.PickleBuffer(sink.getvalue())


def _from_ipc(stream: Any) -> Any:
    import pyarrow

    return pyarrow.ipc.open_stream(pyarrow.py_buffer(stream)).read_all()


def _reduce_table(table: Any) -> Any:
    schema = table.schema
    kinds = [_kind_of(data_type) for data_type in schema.types]
    chunks = [
        None if kind is None else _chunks_of(table.column(i), kind) for i, kind in enumerate(kinds)
    ]
    others = [i for i, kind in enumerate(kinds) if kind is None]
    stream = _ipc(table.select(others)) if others else None
    return _table, (schema, table.num_rows, chunks, stream)


def _table(schema: Any, rows: int, chunks: list[list[_Chunk] | None], stream: Any) -> Any:
    import pyarrow

    others = iter(() if stream is None else _from_ipc(stream).columns)
    columns = [
        next(others)
        if pieces is None
        else pyarrow.chunked_array([_array(data_type, piece) for piece in pieces], data_type)
        for data_type, pieces in zip(schema.types, chunks, strict=True)
    ]
    if not columns:  # Its rows have no columns, but a number.
        return pyarrow.table({"": pyarrow.nulls(rows)}).select([])
    return pyarrow.Table.from_arrays(columns, schema=schema)


def _reduce_batch(batch: Any) -> Any:
    import pyarrow

    _, parts = _reduce_table(pyarrow.Table.from_batches([batch]))
    return _batch, parts


def _batch(*parts: Any) -> Any:
    import pyarrow

    table = _table(*parts)
    batches = table.to_batches()
    if batches:
        return batches[0]
    return pyarrow.RecordBatch.from_arrays(
        [pyarrow.array([], data_type) for data_type in table.schema.types], schema=table.schema
    )


def _reduce_chunked(array: Any) -> Any:
    kind = _kind_of(array.type)
    if kind is None:
        import pyarrow

        return _chunked, (array.type, None, _ipc(pyarrow.table({"": array})))
    return _chunked, (array.type, _chunks_of(array, kind), None)


def _chunked(data_type: Any, chunks: list[_Chunk] | None, stream: Any) -> Any:
    import pyarrow

    if chunks is None:
        return _from_ipc(stream).column(0)
    return pyarrow.chunked_array([_array(data_type, chunk) for chunk in chunks], data_type)


def _reduce_array(array: Any) -> Any:
    kind = _kind_of(array.type)
    if kind is None:
        import pyarrow

        return _one_array, (array.type, _ipc(pyarrow.table({"": array})))
    return _array, (array.type, _chunk_of(array, kind))


def _one_array(data_type: Any, stream: Any) -> Any:
    import pyarrow

    chunks = _from_ipc(stream).column(0).chunks
    return chunks[0] if chunks else pyarrow.array([], data_type)


def _reduce_polars(frame: Any) -> Any:
    return _polars, (frame.to_arrow(),)


def _polars(table: Any) -> Any:
    import polars

    return polars.from_arrow(table)
