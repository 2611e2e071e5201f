# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows of Arrow tables, by parts, by indices and one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sheaf import _core
from sheaf.arrow.table import Data, Table, core_table

MOST_PARTS = 1 << 20


class Parts:
    """The rows of a table ordered by part; in each part they have the order that they had.

    Attributes:
        table: all rows, a :class:`Table`.
        offsets: rows ``offsets[i]`` to ``offsets[i + 1]`` of it are those of part i; ``len(parts)
            + 1`` numbers.
        num_rows: how many rows each part has.
        num_bytes: how many bytes each part has, without dictionaries.
        top_keys: the keys that 1 of 200 rows or more have, the heaviest first, ten at most: a
            :class:`Table` of the key columns. None for a random partition.
        top_rows: how many rows have each of them: exact where the table has up to 4,096 rows, else
            estimated from a sample of that many.
    """

    table: Table
    offsets: list[int]
    num_rows: list[int]
    num_bytes: list[int]
    top_keys: Table | None
    top_rows: list[int]

    @classmethod
    def _of(
        cls, made: tuple[_core.ArrowTable, list[int], list[int], _core.ArrowTable | None, list[int]]
    ) -> Parts:
        parts = cls.__new__(cls)
        table, parts.offsets, parts.num_bytes, heavy, parts.top_rows = made
        parts.table = Table._of(table)
        parts.num_rows = [stop - start for start, stop in zip(parts.offsets, parts.offsets[1:])]
        parts.top_keys = None if heavy is None else Table._of(heavy)
        return parts

    def __len__(self) -> int:
        return len(self.num_rows)

    def __getitem__(self, part: int) -> Table:
        if not -len(self) <= part < len(self):
            raise IndexError(f"part {part} of {len(self)}")
        part %= len(self)
        return Table._of(self.table._table.slice(self.offsets[part], self.offsets[part + 1]))

    def __iter__(self) -> Iterator[Table]:
        return (self[part] for part in range(len(self)))

    def __repr__(self) -> str:
        return f"<sheaf.arrow.Parts: {self.table.num_rows} rows in {len(self)} parts>"


def partition(
    table: Data,
    n: int | None = None,
    *,
    keys: str | Sequence[str] | None = None,
    bounds: Data | None = None,
    descending: bool | Sequence[bool] = False,
    seed: int | None = None,
) -> Parts:
    """Orders the rows of a table by part: by the hash of keys, by ranges of keys, or at random. The
    interpreter is free meanwhile.

    Args:
        table: anything with Arrow's PyCapsule interface.
        n: how many parts, 1 to 1,048,576. With `bounds` it may be left out.
        keys: names of columns. Without `bounds` a row goes to the part that :func:`hash` of its
            keys says, so rows of equal keys are in one part, of this table and of any other.
        bounds: a table of as many columns as `keys` (or a column, for one key) whose rows ascend
            in the order of the sort, and of which there are ``n - 1``. A row is in part i when i
            bounds are not behind it. NaN comes behind all numbers and NULL behind NaN, as in
            pyarrow.
        descending: whether the order falls, for all keys or for each.
        seed: 0 to 2**64 - 1: each row goes to any part, which follows from the seed and the row's
            number alone.

    Returns:
        The :class:`Parts`.

    Raises:
        UnsupportedType: a column is of a type that is not moved (views, unions, run-end encoded),
            or a key is nested.
        MalformedArray: the table is no Arrow data.
        ValueError: a key is missing, bounds do not fit, or arguments contradict each other.
        MemoryError: there is not that much.
    """
    if (keys is None) == (seed is None):
        raise ValueError("give either keys=, for a partition by them, or seed=, for a random one")
    if bounds is not None:
        return _by_range(table, n, keys, bounds, descending)
    if n is None:
        raise ValueError("n, the number of parts, is missing")
    if descending is not False:
        raise ValueError("descending= is for bounds=")
    if not 1 <= n <= MOST_PARTS:
        raise ValueError(f"n={n}: want 1 to {MOST_PARTS} parts")
    if seed is not None:
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed={seed}: want 0 to 2**64 - 1")
        return Parts._of(_core.arrow_partition_at_random(core_table(table), seed, n))
    return Parts._of(_core.arrow_partition_by_hash(core_table(table), _names(keys), n))


def gather(table: Data, indices: Data | Sequence[int]) -> Table:
    """Takes rows of a table by their numbers, as often and in the order that they are named. The
    interpreter is free meanwhile.

    Args:
        table: anything with Arrow's PyCapsule interface.
        indices: integers from 0 on: a column of Arrow, as ``pyarrow.compute.sort_indices`` gives
            it, a NumPy array, or a sequence.

    Returns:
        A :class:`Table` of ``len(indices)`` rows. Text of more than 2 GiB in a column becomes
        large_string there.

    Raises:
        IndexError: there is no such row.
        ValueError: the indices are no integers, or have NULLs.
        UnsupportedType: a column is of a type that is not moved.
        MalformedArray: the table is no Arrow data.
        MemoryError: there is not that much.
    """
    if hasattr(indices, "__arrow_c_array__") or hasattr(indices, "__arrow_c_stream__"):
        return Table._of(_core.arrow_gather(core_table(table), indices))
    import numpy

    numbers = numpy.ascontiguousarray(indices)
    if numbers.size == 0:
        numbers = numbers.astype(numpy.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not numbers.dtype.isnative:
        raise ValueError(f"indices are integers in one row, not {numbers.dtype} {numbers.shape}")
    formats = {
        "i1": "c",
        "i2": "s",
        "i4": "i",
        "i8": "l",
        "u1": "C",
        "u2": "S",
        "u4": "I",
        "u8": "L",
    }
    of_arrow = formats[numbers.dtype.str[1:]]
    return Table._of(_core.arrow_gather_numbers(core_table(table), numbers, of_arrow))


def concat(tables: Sequence[Data]) -> Table:
    """Puts the rows of tables one after the other, in one piece of memory that holds only them. The
    interpreter is free meanwhile.

    Args:
        tables: one at least, with the same columns; string and large_string may be mixed.

    Returns:
        A :class:`Table` of one batch. Text of more than 2 GiB in a column becomes large_string.

    Raises:
        ValueError: there is no table, or their columns differ.
        UnsupportedType: a column is of a type that is not moved.
        MalformedArray: a table is no Arrow data.
        MemoryError: there is not that much.
    """
    if len(tables) == 0:
        raise ValueError("there is no table, so nothing says which columns there are")
    return Table._of(_core.arrow_concat([core_table(table) for table in tables]))


def hash(table: Data, keys: str | Sequence[str]) -> Table:
    """The hash of each row by some columns. It is the same in all processes, languages and
    versions, and the same for keys that are equal: whatever the width of an integer or float,
    whether text is a dictionary; -0.0 is 0.0, NaN is NaN, NULL is NULL. docs/guide/arrow.md
    defines it.

    Args:
        table: anything with Arrow's PyCapsule interface.
        keys: names of columns.

    Returns:
        A :class:`Table` with one column "hash" of uint64, a row for each.

    Raises:
        UnsupportedType: a key is nested.
        MalformedArray: the table is no Arrow data.
        ValueError: a key is missing.
    """
    return Table._of(_core.arrow_hash(core_table(table), _names(keys)))


def _by_range(
    table: Data,
    n: int | None,
    keys: str | Sequence[str] | None,
    bounds: Data,
    descending: bool | Sequence[bool],
) -> Parts:
    if keys is None:
        raise ValueError("bounds= are of keys=, which are missing")
    names = _names(keys)
    falls = [descending] * len(names) if isinstance(descending, bool) else list(descending)
    if len(falls) != len(names):
        raise ValueError(f"descending= has {len(falls)} entries for {len(names)} keys")
    made = Parts._of(_core.arrow_partition_by_range(core_table(table), names, bounds, falls))
    if n is not None and n != len(made):
        raise ValueError(f"n={n} with {len(made) - 1} bounds, which make {len(made)} parts")
    return made


def _names(keys: str | Sequence[str] | None) -> list[str]:
    return [keys] if isinstance(keys, str) else list(keys or ())
