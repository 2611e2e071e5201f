# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What can be read: a Datasource says how much there is and gives read tasks, which give blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sheaf.data.block import BlockMetadata, batch_to_table, slice_rows
from sheaf.data.errors import BatchError, shown
from sheaf.data.user_code import is_users, take_batch

__all__ = ["Datasource", "OneByOne", "ReadTask"]


class ReadTask:
    """A part of a source: calling it, in any process and any number of times, gives its blocks.

    Args:
        read_fn: gives the blocks; it must pickle.
        metadata: what is known of all of them together, before they are read.
        schema: of the blocks, a pa.Schema; None: unknown.
        per_task_row_limit: the task gives no more rows than this.
    """

    def __init__(
        self,
        read_fn: Callable[[], Iterable[Any]],
        metadata: BlockMetadata,
        schema: Any = None,
        per_task_row_limit: int | None = None,
    ):
        self._read_fn = read_fn
        self._metadata = metadata
        self._schema = metadata.schema if schema is None else schema
        self._limit = per_task_row_limit

    @property
    def metadata(self) -> BlockMetadata:
        """What is known of the blocks together."""
        return self._metadata

    @property
    def schema(self) -> Any:
        """The pa.Schema of the blocks, or None."""
        return self._schema

    @property
    def read_fn(self) -> Callable[[], Iterable[Any]]:
        """The function that reads."""
        return self._read_fn

    @property
    def per_task_row_limit(self) -> int | None:
        """The task gives no more rows than this; None: all that it has."""
        return self._limit

    def __call__(self) -> Iterator[Any]:
        made = self._read_fn()
        if not isinstance(made, Iterable) or isinstance(made, (dict, str, bytes)):
            raise BatchError(
                f"a read task gave {shown(made)} of type {type(made).__name__}: want an iterable "
                "of blocks"
            )
        # What has all blocks together changes none of them.
        changes = is_users(self._read_fn) and not isinstance(made, (list, tuple))
        given, left = iter(made), self._limit
        while box := list(itertools.islice(given, 1)):
            table = take_batch(box) if changes else batch_to_table(box[0])
            if left is not None:
                table = slice_rows(table, 0, left)
                left -= table.num_rows
            yield table
            if left is not None and left <= 0:
                return


class OneByOne:
    """Read tasks that are made when they are needed: behind a limit most never are.

    Args:
        make: gives a task for one of the parts.
        parts: what each reads.
    """

    def __init__(self, make: Callable[[Any], ReadTask], parts: Sequence[Any]):
        self._make, self._parts = make, parts

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[ReadTask]:
        return map(self._make, self._parts)

    def __contains__(self, task: object) -> bool:
        return False  # Each time others are made.


class Datasource:
    """Something that can be read; derive from it and define get_read_tasks. All of it runs in the
    driver, and only the read tasks elsewhere."""

    def get_name(self) -> str:
        """Returns the name of operators that read it."""
        name = type(self).__name__
        return name[: -len("Datasource")] if name.endswith("Datasource") else name

    def details(self) -> str:
        """Returns what explain() shows behind its name: columns and filters that it reads with."""
        return ""

    def estimate_inmemory_data_size(self) -> int | None:
        """Returns about how many bytes all blocks take; None: unknown."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks that read all of it.

        Args:
            parallelism: about how many are wanted; there may be fewer.
            per_task_row_limit: no task needs to give more rows than this.
            data_context: the DataContext of the dataset.

        Returns:
            The tasks, in the order of the data.
        """
        raise NotImplementedError(f"{type(self).__name__} has no get_read_tasks")

    def least_read_tasks(self) -> int:
        """Returns how many read tasks there are at least, where the caller does not say."""
        return 1

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether its tasks can run on other nodes: False keeps them on the driver's."""
        return True

    def schema(self) -> Any:
        """Returns the pa.Schema, when it is known without reading; None: it is not."""
        return None

    def num_rows(self) -> int | None:
        """Returns how many rows there are, when that is known without reading."""
        return None

    def supports_projection(self) -> bool:
        """Returns whether with_projection works."""
        return False

    def with_projection(self, columns: Sequence[str]) -> Datasource:
        """The same source with some of its columns.

        Args:
            columns: their names, in the order of the result; each exists.

        Returns:
            Another source.
        """
        raise NotImplementedError(f"{type(self).__name__} reads all columns")

    def supports_predicate(self, expression: Any) -> bool:
        """Whether with_predicate can take this expression, all of it.

        Args:
            expression: of sheaf.data.expressions.

        Returns:
            Whether it can.
        """
        return False

    def with_predicate(self, expression: Any) -> Datasource:
        """The same source without the rows for which the expression is not true.

        Args:
            expression: one that supports_predicate accepts.

        Returns:
            Another source.
        """
        raise NotImplementedError(f"{type(self).__name__} filters no rows")

    def with_row_limit(self, rows: int) -> Datasource:
        """The same source without what lies behind its first rows.

        Args:
            rows: how many, 0 or more, are wanted; it may give more.

        Returns:
            Another source, or this one where it cannot tell what to leave out.
        """
        return self


def balanced(sizes: Sequence[int], groups: int) -> list[range]:
    """Splits a sequence of sizes into at most `groups` runs of about the same sum, in order; each
    has at least one element."""
    count = len(sizes)
    groups = max(1, min(groups, count))
    if not count:
        return []
    weights = [max(1, size) for size in sizes]
    left, result, start = sum(weights), [], 0
    for group in range(groups, 0, -1):
        stop, taken, aim = start, 0, left / group
        while stop < count - (group - 1) and (stop == start or taken + weights[stop] / 2 <= aim):
            taken += weights[stop]
            stop += 1
        if group == 1:
            stop = count
        result.append(range(start, stop))
        left -= taken
        start = stop
    return result
