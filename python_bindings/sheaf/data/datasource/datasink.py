# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What can be written to: the driver begins, tasks write, the driver completes or undoes."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any

from sheaf.data.task_context import TaskContext

__all__ = ["Datasink", "DummyOutputDatasink", "SaveMode", "WriteResult"]


class SaveMode(str, enum.Enum):  # noqa: UP042
    """What becomes of what is there already: it stays and more is added; it is replaced, at the
    end; nothing is written; it is an error."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"
    ERROR = "error"


@dataclasses.dataclass
class WriteResult:
    """What was written: rows and bytes, and what each task's write() returned."""

    num_rows: int
    size_bytes: int
    write_returns: list[Any]

    @classmethod
    def combine(cls, *results: WriteResult) -> WriteResult:
        """All of these together.

        Args:
            *results: of several writes.

        Returns:
            One result.
        """
        return cls(
            sum(result.num_rows for result in results),
            sum(result.size_bytes for result in results),
            [one for result in results for one in result.write_returns],
        )


class Datasink:
    """Something that can be written to; derive from it and define write.

    Attributes:
        skips: on_write_start has found that there is nothing to write: no task runs, and nothing
            else is called.
    """

    skips = False

    def on_write_start(self, schema: Any = None) -> None:
        """Called once in the driver, before the sink goes to its tasks.

        Args:
            schema: of the blocks, when it is known.
        """

    def write(self, blocks: Iterable[Any], ctx: TaskContext) -> Any:
        """Called in each task; a task that fails may be run again.

        Args:
            blocks: of pa.Table.
            ctx: the task.

        Returns:
            What on_write_complete needs; it must pickle.
        """
        raise NotImplementedError(f"{type(self).__name__} has no write")

    def on_write_complete(self, write_result: WriteResult) -> None:
        """Called once in the driver, when all tasks have written.

        Args:
            write_result: of all tasks.
        """

    def on_write_failed(self, error: Exception) -> None:
        """Called once in the driver, when a task has failed for good.

        Args:
            error: of the task.
        """

    def get_name(self) -> str:
        """Returns the name of operators that write to it."""
        name = type(self).__name__
        name = name[: -len("Datasink")] if name.endswith("Datasink") else name
        return name.strip("_")

    @property
    def supports_distributed_writes(self) -> bool:
        """Whether its tasks can run on other nodes."""
        return True

    @property
    def min_rows_per_write(self) -> int | None:
        """How many rows a task should get, at least; None: as they come."""
        return None

    @property
    def min_bytes_per_write(self) -> int | None:
        """How many bytes a task should get, at least; None: as they come."""
        return None


class DummyOutputDatasink(Datasink):
    """Takes all and keeps none; counts rows in `rows_written` of the driver's copy."""

    def __init__(self) -> None:
        self.rows_written = 0
        self.num_ok = 0
        self.num_failed = 0

    def write(self, blocks: Iterable[Any], ctx: TaskContext) -> None:
        """Drops the blocks.

        Args:
            blocks: of pa.Table.
            ctx: the task.
        """
        for _ in blocks:
            pass

    def on_write_complete(self, write_result: WriteResult) -> None:
        """Counts.

        Args:
            write_result: of all tasks.
        """
        self.rows_written += write_result.num_rows
        self.num_ok += 1

    def on_write_failed(self, error: Exception) -> None:
        """Counts.

        Args:
            error: of the task.
        """
        self.num_failed += 1
