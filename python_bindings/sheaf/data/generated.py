# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sources that make their rows: range and range_tensor."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.block import BlockMetadata, batch_to_table


class Part:
    """A read task: rows [start, stop).

    Args:
        start, stop: rows.
        shape: of a tensor per row; None: a number.
    """

    def __init__(self, start: int, stop: int, shape: tuple[int, ...] | None) -> None:
        self._start, self._stop, self._shape = start, stop, shape
        self.metadata = BlockMetadata(stop - start, 8 * (stop - start) * _cells(shape), None, None)

    def __call__(self) -> Any:
        numbers = np.arange(self._start, self._stop, dtype=np.int64)
        if self._shape is None:
            return [pa.table({"id": numbers})]
        tensors = np.broadcast_to(
            numbers.reshape(-1, *[1] * len(self._shape)), (len(numbers), *self._shape)
        )
        return [batch_to_table({"data": np.ascontiguousarray(tensors)})]


@functools.cache
def _cells(shape: tuple[int, ...] | None) -> int:
    return 1 if shape is None else int(np.prod(shape))


class Range:
    """Rows 0 to n.

    Args:
        n: rows.
        shape: of a tensor per row; None: a number.
    """

    is_light = True

    def __init__(self, n: int, shape: tuple[int, ...] | None = None) -> None:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
            raise ValueError(f"range: n={n!r}: want a number of rows of 0 or more")
        self._n, self._shape = int(n), shape

    def get_name(self) -> str:
        """Returns its name in plans."""
        return "Range"

    def num_rows(self) -> int:
        """Returns n."""
        return self._n

    def schema(self) -> Any:
        """Returns the pa.Schema."""
        return Part(0, 0, self._shape)()[0].schema

    def estimate_inmemory_data_size(self) -> int:
        """Returns the bytes of all rows."""
        return 8 * self._n * _cells(self._shape)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: Any = None, data_context: Any = None
    ) -> list[Part]:
        """Read tasks of about equal sizes.

        Args:
            parallelism: how many.
            per_task_row_limit, data_context: have no effect.

        Returns:
            The tasks.
        """
        count = max(1, min(parallelism, self._n))
        ends = [self._n * part // count for part in range(count + 1)]
        return [Part(start, stop, self._shape) for start, stop in zip(ends, ends[1:])]
