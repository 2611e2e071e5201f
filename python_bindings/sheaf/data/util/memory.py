# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Whose memory the columns of Arrow lie in: that of blocks, which nobody writes, is shared; all
else may be an array's, which its user fills again."""

from __future__ import annotations

import bisect
import pickle
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["Memory", "arrays_of_arrow", "own_arrow"]

_COPIED = 64 << 10  # Bytes of Arrow that are copied sooner than it is found out whose they are.


class Memory:
    """The memory of a table that a function is called with, which nobody writes: what the function
    gives of it need not be copied.

    Args:
        table: a pa.Table; None: there is none. It may be set to another one.
    """

    def __init__(self, table: Any = None) -> None:
        self.table = table
        self._lent: dict[int, Any] = {}  # By id.
        self._known: Any = None  # The table whose buffers lie between _starts and _ends.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def lend(self, batch: Any) -> Any:
        """Remembers what lies in a batch: that is found sooner than its addresses.

        Args:
            batch: made of the table, which alone refers to what it is made of.

        Returns:
            It.
        """
        lent: list[Any] = []
        if isinstance(batch, dict):
            for array in batch.values():
                base = array.base
                while type(base) is np.ndarray:
                    base = base.base
                lent.append(base)
        elif hasattr(batch, "iloc"):
            lent += [array._pa_array for array in arrays_of_arrow(batch)]
        self._lent = {id(one): one for one in lent if one is not None}
        return batch

    def has_lent(self, thing: Any) -> bool:
        """Whether a batch lay in something.

        Args:
            thing: an array of Arrow, or another base of an array of NumPy.

        Returns:
            Whether it is known that it did.
        """
        return id(thing) in self._lent

    def has_array(self, root: Any) -> bool:
        """Whether an array is a view of it.

        Args:
            root: of NumPy; its base is no array of NumPy.

        Returns:
            Whether it is known to be.
        """
        base = root.base
        if self.has_lent(base):
            return True
        if not isinstance(base, pa.Array) or not root.flags.c_contiguous:
            return False
        if not self.has(root.__array_interface__["data"][0], root.nbytes):
            return False
        self._lent[id(base)] = base  # Many rows are views of it.
        return True

    def has(self, address: int, size: int) -> bool:
        """Whether some bytes are of it.

        Args:
            address: of the first one.
            size: how many.

        Returns:
            Whether it is known that they are.
        """
        if self._known is not self.table:
            if self._known is not None:
                self._lent = {}
            lent = [one for one in self._lent.values() if isinstance(one, pa.ChunkedArray)]
            chunks = [chunk for column in [*self.table.columns, *lent] for chunk in column.chunks]
            found = sorted((one.address, one.size) for chunk in chunks for one in _buffers(chunk))
            self._starts = [start for start, _ in found]
            self._ends = [start + length for start, length in found]
            self._known = self.table
        place = bisect.bisect_right(self._starts, address) - 1
        return place >= 0 and address + size <= self._ends[place]


def arrays_of_arrow(frame: Any) -> list[Any]:
    """The arrays of a DataFrame that lie in Arrow's, as text of pandas 3 does.

    Args:
        frame: of pandas.

    Returns:
        The extension arrays; each has its pa.ChunkedArray as `_pa_array`.
    """
    try:
        arrays = frame._mgr.arrays  # In a tenth of the time.
    except AttributeError:
        arrays = [column.array for _, column in frame.items()]
    return [array for array in arrays if hasattr(array, "_pa_array")]


def own_arrow(column: Any, memory: Memory | None = None) -> Any:
    """A column whose memory is nobody else's: Arrow does not tell who else holds its buffers, which
    may be a NumPy array's, so that all are copied but those of `memory`.

    Args:
        column: a pa.Array or pa.ChunkedArray.
        memory: that nobody changes, or None.

    Returns:
        Another one, or the same.
    """
    if memory is not None and memory.has_lent(column):
        return column
    if isinstance(column, pa.ChunkedArray):
        chunks = [_own_chunk(chunk, memory) for chunk in column.chunks]
        return pa.chunked_array(chunks, column.type)
    return _own_chunk(column, memory)


def _own_chunk(chunk: Any, memory: Memory | None) -> Any:
    buffers = _buffers(chunk)
    large = sum(one.size for one in buffers) > _COPIED and _used(chunk) > _COPIED
    if memory and large and all(memory.has(one.address, one.size) for one in buffers):
        return chunk
    try:
        copied = pa.concat_arrays([chunk])  # Of the slice alone.
    except pa.ArrowNotImplementedError:
        copied = chunk
    known = {one.address for one in buffers}
    if not known.isdisjoint(one.address for one in _buffers(copied)):
        copied = pickle.loads(pickle.dumps(copied, protocol=4))  # Dictionaries, views.
    return copied


def _used(chunk: Any) -> int:
    try:
        return int(chunk.nbytes)
    except pa.ArrowException:  # Types whose ranges Arrow cannot tell.
        return int(chunk.get_total_buffer_size())


def _buffers(array: Any) -> list[Any]:
    """The buffers of an array and its children, and those of their dictionaries, which Arrow leaves
    out."""
    found = [one for one in array.buffers() if one is not None and one.size]
    for inner in _inner(array):
        found += _buffers(inner)
    return found


def _inner(array: Any) -> list[Any]:
    """The arrays inside an array."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return [array.storage]
    if isinstance(kind, pa.DictionaryType):
        return [array.dictionary]
    if not kind.num_fields:
        return []
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return [array.field(place) for place in range(kind.num_fields)]
    return [array.values]
