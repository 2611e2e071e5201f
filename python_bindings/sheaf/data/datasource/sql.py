# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Databases with Python's DB-API 2: what a query gives, and inserting rows."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data.block import BlockMetadata, rows_to_table
from sheaf.data.columns import values_of
from sheaf.data.datasource.datasink import Datasink
from sheaf.data.datasource.datasource import Datasource, ReadTask
from sheaf.data.task_context import TaskContext

__all__ = ["SQLDatasink", "SQLDatasource"]

_ROWS_AT_ONCE = 10_000


class SQLDatasource(Datasource):
    """The rows of a query.

    Args:
        sql: the query.
        connection_factory: makes a DB-API connection, in each task; it must pickle.
        shard_hash_fn: a function of the database, by which rows are spread over tasks: MD5 by
            default.
        shard_keys: columns that the function is called with; without any one task reads all.
        sql_params: of the query, as its driver takes them.
    """

    def __init__(
        self,
        sql: str,
        connection_factory: Callable[[], Any],
        shard_hash_fn: str = "MD5",
        shard_keys: Sequence[str] | None = None,
        sql_params: Any = None,
    ):
        self._sql, self._connect, self._params = (
            sql.rstrip().rstrip(";"),
            connection_factory,
            sql_params,
        )
        for word in [shard_hash_fn, *(shard_keys or ())]:
            if not re.fullmatch(r"[\w.]+", word):
                raise ValueError(f"{word!r} is no name of a function or column of the database")
        self._hash, self._keys = shard_hash_fn, list(shard_keys or ())

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks: one, or with shard keys each with the rows of one remainder of their hash.

        Args:
            parallelism: how many are wanted.
            per_task_row_limit: no task gives more rows than this.
            data_context: has no effect.

        Returns:
            The tasks.
        """
        count = max(1, parallelism) if self._keys else 1
        queries = [self._sql]
        if count > 1:
            key = f"CONCAT({', '.join(self._keys)})" if len(self._keys) > 1 else self._keys[0]
            queries = [
                f"SELECT * FROM ({self._sql}) AS T "
                f"WHERE MOD(ABS({self._hash}({key})), {count}) = {n}"
                for n in range(count)
            ]
        return [
            ReadTask(
                functools.partial(self._read, query), BlockMetadata(), None, per_task_row_limit
            )
            for query in queries
        ]

    def _read(self, query: str) -> Iterator[Any]:
        with contextlib.closing(self._connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(query, *([] if self._params is None else [self._params]))
            names = [column[0] for column in cursor.description]
            found = False
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                found = True
                yield rows_to_table([dict(zip(names, row)) for row in rows])
            if not found:
                yield pa.table({name: pa.nulls(0) for name in names})


class SQLDatasink(Datasink):
    """Inserts rows; each task in one transaction.

    Args:
        sql: an INSERT with a placeholder for each column.
        connection_factory: makes a DB-API connection, in each task; it must pickle.
    """

    def __init__(self, sql: str, connection_factory: Callable[[], Any]):
        self._sql, self._connect = sql, connection_factory

    def write(self, blocks: Iterable[Any], ctx: TaskContext) -> None:
        """Inserts the rows of a task, all or none.

        Args:
            blocks: of pa.Table.
            ctx: the task.
        """
        with contextlib.closing(self._connect()) as connection:
            cursor = connection.cursor()
            for table in blocks:
                for start in range(0, table.num_rows, _ROWS_AT_ONCE):
                    part = table.slice(start, _ROWS_AT_ONCE)
                    cursor.executemany(self._sql, list(zip(*map(values_of, part.columns))))
            connection.commit()
