# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What files that are written are called."""

from __future__ import annotations

from typing import Any

__all__ = ["FilenameProvider"]


class FilenameProvider:
    """Names files; derive from it for others. Names must differ for different numbers, and be the
    same for the same ones, so that a task which is run again replaces its files.

    Args:
        dataset_uuid: begins the names; the write's own word when not given.
        file_format: ends the names, "parquet".
    """

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None):
        self._word, self._format = dataset_uuid, file_format

    def _name(self, write_uuid: str, *numbers: int) -> str:
        parts = "_".join([self._word or write_uuid, *(f"{number:06}" for number in numbers)])
        return f"{parts}.{self._format}" if self._format else parts

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        """The name of a task's only file.

        Args:
            write_uuid: a word of the write.
            task_index: of the task.

        Returns:
            The name.
        """
        return self._name(write_uuid, task_index)

    def get_filename_for_block(
        self, block: Any, write_uuid: str, task_index: int, block_index: int
    ) -> str:
        """The name of a block's file.

        Args:
            block: a pa.Table.
            write_uuid: a word of the write.
            task_index: of the task.
            block_index: of the block in the task.

        Returns:
            The name.
        """
        return self._name(write_uuid, task_index, block_index)

    def get_filename_for_row(
        self,
        row: dict[str, Any],
        write_uuid: str,
        task_index: int,
        block_index: int,
        row_index: int,
    ) -> str:
        """The name of a row's file.

        Args:
            row: the row.
            write_uuid: a word of the write.
            task_index: of the task.
            block_index: of the block in the task.
            row_index: of the row in the block.

        Returns:
            The name.
        """
        return self._name(write_uuid, task_index, block_index, row_index)
