# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Expressions that read no column: numbers of rows, random values; and what paths in a column
hold."""

from __future__ import annotations

import uuid as names
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.expressions.expression import Computed, Expr, col
from sheaf.data.task_context import TaskContext

__all__ = ["download", "monotonically_increasing_id", "random", "uuid"]


class OfRows(Expr):
    """One value per row, by how many rows the task has seen before: a task that is run again gives
    the same ones.

    Args:
        seed: the same gives the same values to the same blocks.
    """

    _kind = ""

    def __init__(self, seed: int | None = None):
        self._seed = seed
        self._key = names.uuid4().hex

    def value(self, table: Any) -> Any:
        context = TaskContext.current()
        seen = context.kwargs.setdefault("rows_seen", {})
        first = seen.get(self._key, 0)
        seen[self._key] = first + table.num_rows
        if self._kind == "monotonically_increasing_id":
            return pa.array((context.task_idx << 33) + first + np.arange(table.num_rows))
        own = [] if self._seed is not None else [int(self._key[:8], 16)]  # Of two columns, each.
        numbers = np.random.default_rng(context.random_seed(self._seed, first, *own))
        if self._kind == "uuid":
            words = (numbers.bytes(16) for _ in range(table.num_rows))
            return pa.array([str(names.UUID(bytes=word, version=4)) for word in words], pa.string())
        return pa.array(numbers.random(table.num_rows))

    def is_of_task(self) -> bool:
        """Returns True."""
        return True

    def __repr__(self) -> str:
        return f"{self._kind}()"


class MonotonicallyIncreasingIdExpr(OfRows):
    """As monotonically_increasing_id() gives it."""

    _kind = "monotonically_increasing_id"


class RandomExpr(OfRows):
    """As random() gives it."""

    _kind = "random"


class UUIDExpr(OfRows):
    """As uuid() gives it."""

    _kind = "uuid"


def monotonically_increasing_id() -> Expr:
    """A whole number per row, each once; it rises within a task. Returns the expression."""
    return MonotonicallyIncreasingIdExpr()


def random(*, seed: int | None = None, reseed_after_execution: bool = True) -> Expr:
    """A number from 0 to below 1 per row.

    Args:
        seed: the same gives the same numbers to the same blocks.
        reseed_after_execution: has no effect.

    Returns:
        The expression.
    """
    return RandomExpr(seed)


def uuid() -> Expr:
    """A random UUID per row, as text. Returns the expression."""
    return UUIDExpr()


def download(uri_column_name: str, *, filesystem: Any = None) -> Expr:
    """The bytes of the files that a column names; NULL where it is NULL or the file cannot be read.

    Args:
        uri_column_name: of the column.
        filesystem: of pyarrow or fsspec; by the scheme of each path when not given.

    Returns:
        The expression.
    """
    return DownloadExpr(uri_column_name, filesystem)


class DownloadExpr(Computed):
    """As download() gives it.

    Args:
        uri_column_name, filesystem: as of download().
    """

    def __init__(self, uri_column_name: str, filesystem: Any = None):
        super().__init__(_Download(filesystem), [col(uri_column_name)], "download")
        self.uri_column_name, self.filesystem = uri_column_name, filesystem


class _Download:
    def __init__(self, filesystem: Any):
        self._filesystem = filesystem

    def __call__(self, paths: Any) -> Any:
        return pa.array([self._bytes(path) for path in paths.to_pylist()], pa.large_binary())

    def _bytes(self, path: str | None) -> bytes | None:
        from sheaf.data.datasource import filesystems

        if path is None:
            return None

        def read() -> bytes:
            system, (plain,) = filesystems.resolve(path, self._filesystem)
            with system.open_input_stream(plain, compression=None) as file:
                return bytes(file.read())

        try:
            return filesystems.retried(read, path)
        except OSError:
            return None
