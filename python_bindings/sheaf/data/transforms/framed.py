# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Many small tables as DataFrames, and many small DataFrames as tables. pandas takes as long for
ten rows as for ten thousand, so both are made of many at once where that is the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.util.memory import Memory, arrays_of_arrow, own_arrow

__all__ = ["Framed", "Joined", "OwnFrame", "framed", "own_frame"]

_ROWS_AT_ONCE = 16384
_LONGEST_S = 0.05  # For which a frame waits for others.


class Framed(Memory):
    """A table that is a DataFrame already; that is its user's, who may change it."""

    def __init__(self, table: Any, frame: Any) -> None:
        super().__init__(table)
        self.frame = self.lend(frame)
        self.num_rows = table.num_rows


def framed(tables: Iterator[Any], zero_copy: bool) -> Iterator[Any]:
    """Tables with their DataFrames.

    Args:
        tables: slices of one table, one behind the other, none without rows.
        zero_copy: as of table_to_batch.

    Yields:
        Of each a Framed, or itself where only its own rows say what its DataFrame is.
    """
    run: list[Any] = []
    rows = 0
    for table in tables:
        run.append(table)
        rows += table.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield from _framed_run(run, zero_copy)
            run, rows = [], 0
    yield from _framed_run(run, zero_copy)


def _framed_run(run: list[Any], zero_copy: bool) -> Iterator[Any]:
    if len(run) < 2:
        yield from run
        return
    whole = blocks.concat(run)
    if not all(map(_looks_the_same_in_parts, whole.columns)):
        yield from run
        return
    import pandas

    frame = blocks.table_to_batch(whole, "pandas", zero_copy)
    start = 0
    for table in run:
        part = frame.iloc[start : start + table.num_rows]
        part.index = pandas.RangeIndex(table.num_rows)
        if (
            getattr(part, "_is_copy", None) is not None
        ):  # Before pandas 3: who changes it is warned.
            part._is_copy = None
        start += table.num_rows
        yield Framed(table, part if zero_copy else part.copy())


def _looks_the_same_in_parts(column: Any) -> bool:
    """Whether pandas has some rows of a column in the type in which it has all: integers and flags
    with NULL are in another, nested values and dictionaries may be."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return bool(column.null_count == 0)
    same = (
        pa.types.is_floating,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_temporal,
        pa.types.is_decimal,
    )
    return any(is_one(kind) for is_one in same)


class OwnFrame:
    """A DataFrame that a function gave and nobody changes any more, with what others have in common
    that it may be joined with."""

    def __init__(self, frame: Any, kind: Any) -> None:
        self.frame, self.kind = frame, kind


def own_frame(batch: Any, memory: Memory) -> OwnFrame | None:
    """A copy of a DataFrame which others may be joined with.

    Args:
        batch: what a function gave.
        memory: that of what the function was called with.

    Returns:
        The frame; None: it is no such one.
    """
    kind = _kind_of(batch)
    if kind is None:
        return None
    frame = batch.copy()
    for array in arrays_of_arrow(frame):  # Which copy() leaves where they are.
        array._pa_array = own_arrow(array._pa_array, memory)
    return OwnFrame(frame, kind)


class Joined:
    """DataFrames that become tables together, as long as they have the same columns of types whose
    values alone say what they are in Arrow."""

    def __init__(self) -> None:
        self._frames: list[Any] = []
        self._kind: Any = None
        self._rows, self._since = 0, 0.0

    def add(self, own: OwnFrame) -> Iterator[Any]:
        """Takes what a function gave, and gives the tables that are ready, in order."""
        if self._frames and own.kind != self._kind:
            yield self._table()
        if not self._frames:
            self._kind, self._since = own.kind, time.monotonic()
        self._frames.append(own.frame)
        self._rows += len(own.frame)
        if self._rows >= _ROWS_AT_ONCE or time.monotonic() - self._since > _LONGEST_S:
            yield self._table()

    def rest(self) -> Iterator[Any]:
        """The tables of what was taken and has not been given."""
        if self._frames:
            yield self._table()

    def _table(self) -> Any:
        import pandas

        frames, self._frames, self._rows = self._frames, [], 0
        return blocks.batch_to_table(
            frames[0] if len(frames) == 1 else pandas.concat(frames, ignore_index=True)
        )


def _kind_of(batch: Any) -> Any:
    """Columns and types of a DataFrame which others may go with; None: it goes alone, as all do
    before pandas 3, whose copies are not safe from changes."""
    if type(batch).__module__.partition(".")[0] != "pandas" or not hasattr(batch, "columns"):
        return None
    import pandas

    if int(pandas.__version__.partition(".")[0]) < 3 or not len(batch) or not len(batch.columns):
        return None
    if not batch.columns.is_unique:
        return None
    types = tuple(batch.dtypes)
    if not all(getattr(one, "kind", "O") in "biufMm" or one == "str" for one in types):
        return None
    return tuple(batch.columns), types
