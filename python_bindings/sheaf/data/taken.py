# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What users' functions give, taken so that nobody changes it any more: a function may fill one
array for each batch, or return one dict for each row.

Memory that nobody else holds is taken as it is, which the counts of references tell, and so is what
nobody may write: views of blocks. All else is copied. What is to be taken comes in a list, which
alone refers to it: a variable would count as a holder.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data import block as blocks

__all__ = ["own_column", "own_frame", "own_table", "take_batch", "take_row"]

_ONE = 2  # sys.getrefcount of what one container refers to: its own argument counts.
_CONSTANT = {
    bool,
    bytes,
    complex,
    datetime.date,
    datetime.datetime,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    float,
    int,
    str,
    type(None),
    *(kind for kind in np.sctypeDict.values() if kind not in (np.void, np.object_)),
}
_are_constant = frozenset(_CONSTANT).issuperset


def take_batch(results: list[Any], at: int = 0, given: Any = None) -> Any:
    """A batch that a function gave.

    Args:
        results: it is one of these.
        at: which one.
        given: the pa.Table that the function was called with, whose memory it may give back.

    Returns:
        The pa.Table.

    Raises:
        BatchError: it is no batch.
    """
    held = sys.getrefcount(results[at]) > _ONE
    batch = results[at]
    if isinstance(batch, Mapping):
        held = held or type(batch) is not dict
        return blocks.batch_to_table({name: own_column(batch, name, held) for name in batch})
    if isinstance(batch, (pa.Table, pa.RecordBatch)):
        return own_table(blocks.batch_to_table(batch), given)
    return blocks.batch_to_table(own_frame(batch))


def own_frame(batch: Any) -> Any:
    """A DataFrame whose memory is nobody else's; what is none of pandas as it is."""
    pandas = type(batch).__module__.partition(".")[0] == "pandas" and hasattr(batch, "columns")
    return batch.copy() if pandas else batch


def own_column(batch: Any, key: Any, held: bool = False) -> Any:
    """A column that a function gave.

    Args:
        batch: what holds the column, which column_of takes.
        key: where.
        held: whether somebody else has a reference to `batch`.

    Returns:
        What column_of takes; nobody changes it any more.
    """
    held = held or sys.getrefcount(batch[key]) > _ONE
    column = batch[key]
    if isinstance(column, np.ndarray):
        return _own_array(column, held)
    library = type(column).__module__.partition(".")[0]
    if library == "pandas" and hasattr(column, "copy"):
        return column.copy()
    if library == "torch" and getattr(column, "is_cpu", False):
        return column.detach().clone()
    if library in ("polars", "pyarrow", "torch") or isinstance(column, np.generic):
        return column
    return _own_array(np.asarray(column), True) if hasattr(column, "__array__") else column


def _own_array(array: Any, held: bool) -> Any:
    """It, or a copy when somebody else may write to its memory."""
    root = array
    while isinstance(root.base, np.ndarray):
        held = held or sys.getrefcount(root.base) > _ONE
        root = root.base
    if root.base is not None:  # Memory of others.
        held = array.flags.writeable or not _is_a_block_s(root.base)
    return array.copy() if held else array


def _is_a_block_s(memory: Any) -> bool:
    return type(memory) is bytes or type(memory).__module__.partition(".")[0] == "pyarrow"


def own_table(table: Any, given: Any = None) -> Any:
    """A table whose memory is nobody else's: Arrow does not tell who else holds its buffers, so
    that all are copied but those of `given`.

    Args:
        table: a pa.Table.
        given: a pa.Table that nobody changes, or None.

    Returns:
        A pa.Table.
    """
    if table is given or not table.num_columns:
        return table
    known = set() if given is None else {at for one in given.columns for at in _addresses(one)}
    columns = [
        column
        if known.issuperset(_addresses(column))
        else pa.chunked_array([pa.concat_arrays([chunk]) for chunk in column.chunks], column.type)
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _addresses(column: Any) -> list[int]:
    return [
        buffer.address
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None and buffer.size
    ]


def take_row(results: Any, at: int = 0, given: Any = None, held: bool = False) -> Any:
    """A row that a function gave.

    Args:
        results: a list or tuple; it is one of these.
        at: which one.
        given: the row that the function was called with, to which the caller refers.
        held: whether somebody else has a reference to `results`.

    Returns:
        A dict; what is no mapping as it is.
    """
    held = held or sys.getrefcount(results[at]) > (_ONE + 1 if results[at] is given else _ONE)
    row = results[at]
    if not isinstance(row, Mapping):
        return row
    if _are_constant(map(type, row.values())):
        return dict(row) if held else row
    held = held or type(row) is not dict
    return {name: _own_value(row, name, held) for name in row}


def _own_value(container: Any, key: Any, held: bool) -> Any:
    held = held or sys.getrefcount(container[key]) > _ONE
    value = container[key]
    kind = type(value)
    if kind in _CONSTANT:
        return value
    if kind is np.ndarray and value.dtype != object:
        return _own_array(value, held)
    if kind in (list, tuple):
        if _are_constant(map(type, value)):
            return value[:] if held else value
        return kind([_own_value(value, at, held) for at in range(len(value))])
    if kind is dict:
        return {name: _own_value(value, name, held) for name in value}
    if kind.__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        return value.detach().clone()
    try:
        return copy.deepcopy(value)
    except Exception:  # What cannot be copied cannot be pickled either, which will be said.
        return value
