# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A block is a pyarrow.Table. What comes in as rows or batches of other libraries becomes one here,
and what users see is made of one here.

At the edges (readers, user functions) a block may also be a pandas.DataFrame. None of this keeps
state; all functions are thread-safe.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.schema import check_columns, conform, unify_schemas
from sheaf.data.tables import (
    BATCH_FORMATS,
    batch_to_table,
    combine,
    concat,
    empty_rows,
    random_permutation,
    rows_of_bytes,
    rows_to_table,
    size_bytes,
    slice_rows,
    table_to_batch,
    table_to_rows,
)

__all__ = [
    "BATCH_FORMATS",
    "Block",
    "BlockAccessor",
    "BlockExecStats",
    "BlockMetadata",
    "batch_to_table",
    "combine",
    "concat",
    "conform",
    "empty_rows",
    "random_permutation",
    "rows_of_bytes",
    "rows_to_table",
    "size_bytes",
    "slice_rows",
    "table_to_batch",
    "table_to_rows",
    "unify_schemas",
]

Block = Any  # pa.Table or pandas.DataFrame; inside only pa.Table.


@dataclasses.dataclass
class BlockExecStats:
    """What making a block took: wall and CPU seconds, and when (time.time())."""

    wall_time_s: float | None = None
    cpu_time_s: float | None = None
    start_time_s: float | None = None
    end_time_s: float | None = None
    node_id: str | None = None


@dataclasses.dataclass
class BlockMetadata:
    """What is known of a block without reading it.

    Attributes:
        num_rows: None: unknown.
        size_bytes: in memory, as Arrow; None: unknown.
        schema: a pa.Schema; None: unknown.
        input_files: that it was read from.
        exec_stats: what making it took.
    """

    num_rows: int | None = None
    size_bytes: int | None = None
    schema: Any = None
    input_files: list[str] | None = None
    exec_stats: Any = None


class BlockAccessor:
    """What users of Ray's block interface call, over one block.

    Args:
        table: a pa.Table; for_block takes other blocks, too.
    """

    def __init__(self, table: Any):
        self._table = table

    @staticmethod
    def for_block(block: Any) -> BlockAccessor:
        """An accessor for a block.

        Args:
            block: a pa.Table, a DataFrame, a dict of columns, or a list of rows.

        Returns:
            The accessor.
        """
        return BlockAccessor(
            rows_to_table(block) if isinstance(block, list) else batch_to_table(block)
        )

    @staticmethod
    def batch_to_block(batch: Any, block_type: Any = None) -> Any:
        """A batch as a block.

        Args:
            batch: what batch_to_table takes.
            block_type: has no effect.

        Returns:
            The pa.Table.
        """
        return batch_to_table(batch)

    def num_rows(self) -> int:
        """Returns how many rows there are."""
        return int(self._table.num_rows)

    def size_bytes(self) -> int:
        """Returns the bytes that the rows take as Arrow."""
        return size_bytes(self._table)

    def schema(self) -> Any:
        """Returns the pa.Schema."""
        return self._table.schema

    def column_names(self) -> list[str]:
        """Returns the names of the columns."""
        return list(self._table.column_names)

    def get_metadata(
        self, input_files: list[str] | None = None, exec_stats: Any = None
    ) -> BlockMetadata:
        """What is known of the block.

        Args:
            input_files: that it was read from.
            exec_stats: what making it took.

        Returns:
            The metadata.
        """
        return BlockMetadata(
            self.num_rows(), self.size_bytes(), self.schema(), input_files, exec_stats
        )

    def iter_rows(self, public_row_format: bool = True) -> Iterator[dict[str, Any]]:
        """The rows as dicts.

        Args:
            public_row_format: has no effect.

        Yields:
            One dict per row.
        """
        yield from table_to_rows(self._table)

    def slice(self, start: int, end: int | None = None, copy: bool = False) -> Any:
        """The rows from `start` to before `end`.

        Args:
            start: the first row.
            end: the first row that is left out; None: all from `start`.
            copy: whether the result keeps none of this block's memory.

        Returns:
            A pa.Table.
        """
        end = self._table.num_rows if end is None else end
        part = slice_rows(self._table, start, max(0, end - start))
        return part.take(pa.array(np.arange(part.num_rows))) if copy else part

    def take(self, indices: Sequence[int]) -> Any:
        """The rows with these numbers.

        Args:
            indices: of the rows, in the order of the result.

        Returns:
            A pa.Table.
        """
        return self._table.take(pa.array(indices, pa.int64()))

    def select(self, columns: Sequence[str]) -> Any:
        """Some of the columns.

        Args:
            columns: their names.

        Returns:
            A pa.Table.
        """
        check_columns(columns, self._table.column_names)
        return self._table.select(list(columns))

    def rename_columns(self, columns_rename: Mapping[str, str]) -> Any:
        """The block with other names of columns.

        Args:
            columns_rename: old names with the new ones.

        Returns:
            A pa.Table.
        """
        check_columns(columns_rename, self._table.column_names)
        names = [columns_rename.get(name, name) for name in self._table.column_names]
        return self._table.rename_columns(names)

    def random_shuffle(self, random_seed: int | None = None) -> Any:
        """The rows in random order.

        Args:
            random_seed: the same gives the same order.

        Returns:
            A pa.Table.
        """
        return self._table.take(random_permutation(self._table.num_rows, random_seed))

    def zip(self, other: Any) -> Any:
        """The columns of both, side by side; a name that both have gets "_1" in the second.

        Args:
            other: a block of as many rows.

        Returns:
            A pa.Table.
        """
        other = batch_to_table(other)
        if other.num_rows != self._table.num_rows:
            raise ValueError(f"cannot zip {self._table.num_rows} rows with {other.num_rows}")
        table = self._table
        for name, column in zip(other.column_names, other.columns):
            free = (
                new
                for number in itertools.count()
                if (new := f"{name}_{number}" if number else name) not in table.column_names
            )
            table = table.append_column(next(free), column)
        return table

    def to_arrow(self) -> Any:
        """Returns the pa.Table."""
        return self._table

    def to_block(self) -> Any:
        """Returns the pa.Table."""
        return self._table

    def to_default(self) -> Any:
        """Returns the pa.Table."""
        return self._table

    def to_pandas(self) -> Any:
        """Returns the rows as a pandas.DataFrame."""
        return table_to_batch(self._table, "pandas")

    def to_numpy(self, columns: str | Sequence[str] | None = None) -> Any:
        """Columns as NumPy.

        Args:
            columns: one name, some, or None for all.

        Returns:
            One array for one name, else a dict of arrays.
        """
        wanted = [columns] if isinstance(columns, str) else columns or self._table.column_names
        arrays = table_to_batch(self.select(wanted), "numpy")
        return arrays[columns] if isinstance(columns, str) else arrays

    def to_batch_format(self, batch_format: str | None) -> Any:
        """The block as a batch.

        Args:
            batch_format: as of table_to_batch.

        Returns:
            The batch.
        """
        return table_to_batch(self._table, batch_format)
