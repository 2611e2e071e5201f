# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sources that need no files: numbers, and what the program has in memory."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.block import BlockMetadata, batch_to_table, rows_to_table, size_bytes
from sheaf.data.columns import column_of
from sheaf.data.datasource.datasource import Datasource, OneByOne, ReadTask, balanced

__all__ = ["BlocksDatasource", "RangeDatasource", "items_to_tables", "numpy_to_table"]

_BYTES_AT_ONCE = 32 << 20  # A block of numbers.


class RangeDatasource(Datasource):
    """The numbers from 0 on.

    Args:
        n: how many, 0 or more.
        block_format: "arrow", or "tensor": each number fills a tensor.
        tensor_shape: of each tensor.
        column_name: "id", or "data" for tensors, when not given.
    """

    is_light = True  # It takes no more than making tables.

    def __init__(
        self,
        n: int,
        block_format: str = "arrow",
        tensor_shape: tuple[int, ...] = (1,),
        column_name: str | None = None,
    ):
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise ValueError(f"range: n={n!r}: want a whole number of rows, 0 or more")
        self._rows = int(n)
        self._shape = tuple(tensor_shape) if block_format == "tensor" else None
        self._column = column_name or ("data" if self._shape else "id")

    def schema(self) -> Any:
        """Returns the pa.Schema."""
        return self._table(0, 0).schema

    def num_rows(self) -> int:
        """Returns how many numbers there are."""
        return self._rows

    def with_row_limit(self, rows: int) -> RangeDatasource:
        """The first numbers.

        Args:
            rows: how many.

        Returns:
            Another source.
        """
        shorter = copy.copy(self)
        shorter._rows = min(rows, self._rows)
        return shorter

    def _row_bytes(self) -> int:
        return 8 * int(np.prod(self._shape or (1,)))

    def estimate_inmemory_data_size(self) -> int:
        """Returns the bytes of all rows."""
        return self._rows * self._row_bytes()

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks, each with a run of the numbers.

        Args:
            parallelism: how many are wanted; there are fewer when there are fewer rows.
            per_task_row_limit: no task gives more rows than this.
            data_context: has no effect.

        Returns:
            The tasks.
        """
        return list(self.lazy_read_tasks(parallelism, per_task_row_limit, data_context))

    def lazy_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> OneByOne:
        """As get_read_tasks, each task when it is needed.

        Args:
            parallelism, per_task_row_limit, data_context: as of get_read_tasks.

        Returns:
            What gives them.
        """
        schema, row_bytes = self.schema(), self._row_bytes()
        count = max(1, min(parallelism, self._rows))

        def task(number: int) -> ReadTask:
            start, stop = number * self._rows // count, (number + 1) * self._rows // count
            metadata = BlockMetadata(stop - start, (stop - start) * row_bytes, schema)
            read = functools.partial(self._read, start, stop)
            return ReadTask(read, metadata, schema, per_task_row_limit)

        return OneByOne(task, range(count))

    def _read(self, start: int, stop: int) -> Iterator[Any]:
        at_once = max(1, _BYTES_AT_ONCE // self._row_bytes())
        for first in range(start, max(stop, start + 1), at_once):
            yield self._table(first, min(stop, first + at_once))

    def _table(self, start: int, stop: int) -> Any:
        numbers = np.arange(start, stop, dtype=np.int64)
        if self._shape:
            each = numbers.reshape(-1, *(1 for _ in self._shape))
            numbers = np.broadcast_to(each, (len(numbers), *self._shape))
        return pa.table({self._column: column_of(self._column, numbers)})


class BlocksDatasource(Datasource):
    """Blocks that the program has; each becomes part of a task.

    Args:
        blocks: as of batch_to_table.
    """

    def __init__(self, blocks: Sequence[Any]):
        self._tables = [batch_to_table(block) for block in blocks]

    def schema(self) -> Any:
        """Returns the pa.Schema of the first block; None when there is none."""
        return self._tables[0].schema if self._tables else None

    def num_rows(self) -> int:
        """Returns how many rows all have."""
        return sum(table.num_rows for table in self._tables)

    def estimate_inmemory_data_size(self) -> int:
        """Returns the bytes of all."""
        return sum(map(size_bytes, self._tables))

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks, each with some of the blocks.

        Args:
            parallelism: about how many are wanted.
            per_task_row_limit: no task gives more rows than this.
            data_context: has no effect.

        Returns:
            The tasks.
        """
        sizes = [size_bytes(table) for table in self._tables]
        tasks = []
        for part in balanced(sizes, parallelism):
            tables = self._tables[part.start : part.stop]
            rows = sum(table.num_rows for table in tables)
            schema = tables[0].schema
            metadata = BlockMetadata(rows, sum(sizes[part.start : part.stop]), schema)
            read: functools.partial[list[Any]] = functools.partial(list, tables)
            tasks.append(ReadTask(read, metadata, schema, per_task_row_limit))
        return tasks


def items_to_tables(items: Sequence[Any], parts: int) -> list[Any]:
    """Values of a program as tables of about the same number of rows.

    Args:
        items: dicts, or values that become {"item": value}.
        parts: how many tables; fewer when there are fewer items.

    Returns:
        The tables; one without rows for no items.
    """
    count = max(1, min(parts, len(items)))
    cuts = [part * len(items) // count for part in range(count + 1)]
    return [rows_to_table(items[start:stop]) for start, stop in zip(cuts, cuts[1:])]


def numpy_to_table(array: Any, column: str = "data") -> Any:
    """An array as a table of one column, one row per element along its first axis.

    Args:
        array: of one or more dimensions.
        column: its name.

    Returns:
        The pa.Table.
    """
    return batch_to_table({column: np.asarray(array)})
