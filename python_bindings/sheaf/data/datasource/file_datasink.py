# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sinks that are folders of files. Tasks write beside (see staging.py), and the driver moves the
files to their names when all tasks are done: a task that is run again leaves one file, and a write
that fails none. Where a file appears only when it is closed (object stores), tasks write under the
names themselves, which are the same for each try of a task."""

from __future__ import annotations

import collections
import errno
import functools
import posixpath
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from sheaf.data.block import BlockAccessor, concat, slice_rows, table_to_rows
from sheaf.data.datasource import filesystems
from sheaf.data.datasource.datasink import Datasink, SaveMode, WriteResult
from sheaf.data.datasource.filename_provider import FilenameProvider
from sheaf.data.datasource.staging import Staging, delete_files, finish_dead_writes, folder_of
from sheaf.data.errors import WriteError
from sheaf.data.task_context import TaskContext
from sheaf.exceptions import OutOfDiskError

__all__ = ["BlockBasedFileDatasink", "RowBasedFileDatasink"]

_WHOLE_WHEN_CLOSED = ("s3", "gcs", "abfs")


class FileDatasink(Datasink):
    """What both kinds of file sinks have in common.

    Args:
        path: of the folder.
        filesystem: of pyarrow or fsspec; by the path's scheme when not given.
        try_create_dir: makes the folder when it is not there.
        open_stream_args: handed to the file system's open_output_stream.
        filename_provider: names the files.
        dataset_uuid: begins the names.
        file_format: ends the names.
        mode: what becomes of files that are there; see SaveMode.
    """

    def __init__(
        self,
        path: str,
        *,
        filesystem: Any = None,
        try_create_dir: bool = True,
        open_stream_args: dict[str, Any] | None = None,
        filename_provider: FilenameProvider | None = None,
        dataset_uuid: str | None = None,
        file_format: str | None = None,
        mode: SaveMode | str = SaveMode.APPEND,
    ):
        self.filesystem, (self.path,) = filesystems.resolve(path, filesystem)
        self.path = self.path.rstrip("/") or "/"
        self.try_create_dir = try_create_dir
        self.open_stream_args = dict(open_stream_args or {})
        self.filename_provider = filename_provider or FilenameProvider(dataset_uuid, file_format)
        self.mode = SaveMode(mode)
        self._word = dataset_uuid
        self.write_uuid = dataset_uuid or uuid.uuid4().hex  # Another of each write.
        self._attempt = ""  # Of a task: one that was given up may still write.
        self._completing = False
        self._folder = ""  # Where tasks write: the driver names it.

    @property
    def _staging(self) -> Staging | None:
        """Where tasks write; None: under the names themselves."""
        if self.filesystem.type_name in _WHOLE_WHEN_CLOSED:
            return None
        return Staging(self.filesystem, self._folder)

    def _existing(self) -> list[str]:
        listed = filesystems.list_files(self.filesystem, [self.path], ignore_missing_paths=True)
        return [info.path for info in listed]

    def on_write_start(self, schema: Any = None) -> None:
        """Looks at what is there, and makes the folders; what a write has left whose driver died is
        removed, or finished, first.

        Args:
            schema: has no effect.

        Raises:
            ValueError: there are files, and the mode is SaveMode.ERROR.
        """
        self.write_uuid = self._word or uuid.uuid4().hex
        self._completing = False
        self._folder = folder_of(self.path, self.write_uuid)
        staging = self._staging
        if staging is not None:
            finish_dead_writes(self.filesystem, self.path)
        there = self._existing()
        if there and self.mode == SaveMode.ERROR:
            raise ValueError(f"{self.path} holds {len(there)} files, and mode is SaveMode.ERROR")
        self.skips = bool(there) and self.mode == SaveMode.IGNORE
        if self.skips:
            return
        if self.try_create_dir:
            self.filesystem.create_dir(self.path, recursive=True)
        if staging is not None:
            self.filesystem.create_dir(staging.folder, recursive=True)

    def write(self, blocks: Iterable[Any], ctx: TaskContext) -> list[tuple[str, str]]:
        """Writes the files of a task.

        Args:
            blocks: of pa.Table.
            ctx: the task.

        Returns:
            For each file, where it lies and where it shall lie.

        Raises:
            OutOfDiskError: the disk is full.
            WriteError: a file could not be written.
        """
        staging = self._staging
        if staging is not None:
            self._attempt = uuid.uuid4().hex[:8]
            # Not with those above it: when the write has failed the folder is not made anew.
            self.filesystem.create_dir(
                posixpath.join(staging.folder, self._attempt), recursive=False
            )
        written: list[tuple[str, str]] = []
        there = (block for block in blocks if block.num_rows)
        for index, table in enumerate(self._together(there)):
            self.write_block(BlockAccessor.for_block(table), index, ctx, written)
        return written

    def _together(self, blocks: Iterable[Any]) -> Iterable[Any]:
        """The blocks of which each becomes a file."""
        return blocks

    def write_block(
        self,
        block: BlockAccessor,
        block_index: int,
        ctx: TaskContext,
        written: list[tuple[str, str]],
    ) -> None:
        """Writes the files of a block.

        Args:
            block: of rows.
            block_index: of the block in the task.
            ctx: the task.
            written: takes the files, as of write.
        """
        raise NotImplementedError

    def write_file(
        self, name: str, fill: Callable[[Any], None], written: list[tuple[str, str]]
    ) -> None:
        """Writes one file.

        Args:
            name: below the folder; it may have folders of its own.
            fill: writes into an open file; again into an empty one after an error that may pass.
            written: takes the file, as of write.
        """
        staging = self._staging
        folder = posixpath.join(staging.folder, self._attempt) if staging else self.path
        temporary = posixpath.join(folder, name)

        def write() -> None:
            if "/" in name and (self.try_create_dir or staging is not None):
                self.filesystem.create_dir(posixpath.dirname(temporary), recursive=True)
            with self.open_output_stream(temporary) as file:
                fill(file)

        try:
            filesystems.retried(write, temporary)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise OutOfDiskError(f"{temporary}: {error}") from error
            raise WriteError(f"{temporary}: {error}") from error
        written.append((temporary, posixpath.join(self.path, name)))

    def open_output_stream(self, path: str) -> Any:
        """A new file.

        Args:
            path: in the file system.

        Returns:
            It, open for writing.
        """
        return self.filesystem.open_output_stream(path, **self.open_stream_args)

    def on_write_complete(self, write_result: WriteResult) -> None:
        """Gives files their names; with SaveMode.OVERWRITE removes those that were there.

        Args:
            write_result: of all tasks.

        Raises:
            WriteError: two files would have one name.
        """
        moves = [move for returned in write_result.write_returns for move in returned or ()]
        new = {final for _, final in moves}
        if len(new) < len(moves):
            (name, count), *_ = collections.Counter(final for _, final in moves).most_common(1)
            raise WriteError(
                f"{name}: {count} files would have this name: filename_provider must give each "
                "another one, by write_uuid, task_index and block_index"
            )
        self._completing = True
        old = self._existing() if self.mode == SaveMode.OVERWRITE else []
        deletes = [path for path in old if path not in new]
        staging = self._staging
        if staging is None:
            delete_files(self.filesystem, deletes)
        else:
            staging.commit(moves, deletes)

    def on_write_failed(self, error: Exception) -> None:
        """Removes what tasks have written.

        Args:
            error: of a task.
        """
        staging = self._staging
        if self._completing:
            return  # That has cleaned up, or leaves what the next write goes on with.
        if staging is not None:
            staging.remove()
        else:
            written = [path for path in self._existing() if self.write_uuid in path]
            delete_files(self.filesystem, written)


class RowBasedFileDatasink(FileDatasink):
    """A file per row; derive from it and define write_row_to_file. Arguments as of FileDatasink."""

    def write_row_to_file(self, row: dict[str, Any], file: Any) -> None:
        """Writes one row.

        Args:
            row: of the dataset.
            file: open for writing.
        """
        raise NotImplementedError(f"{type(self).__name__} has no write_row_to_file")

    def write_block(
        self,
        block: BlockAccessor,
        block_index: int,
        ctx: TaskContext,
        written: list[tuple[str, str]],
    ) -> None:
        """Writes a file per row.

        Args:
            block: of rows.
            block_index: of the block in the task.
            ctx: the task.
            written: takes the files, as of write.
        """
        for row_index, row in enumerate(table_to_rows(block.to_arrow())):
            name = self.filename_provider.get_filename_for_row(
                row, self.write_uuid, ctx.task_idx, block_index, row_index
            )
            self.write_file(name, functools.partial(self.write_row_to_file, row), written)


class BlockBasedFileDatasink(FileDatasink):
    """A file per block; derive from it and define write_block_to_file.

    Args:
        path: of the folder.
        min_rows_per_file: how many rows a file should have, at least.
        max_rows_per_file: how many it has at most.
        **file_datasink_kwargs: as of FileDatasink.
    """

    def __init__(
        self,
        path: str,
        *,
        min_rows_per_file: int | None = None,
        max_rows_per_file: int | None = None,
        **file_datasink_kwargs: Any,
    ):
        for end, rows in (("min", min_rows_per_file), ("max", max_rows_per_file)):
            if rows is not None and rows < 1:
                raise ValueError(f"{end}_rows_per_file={rows}: want 1 or more")
        if min_rows_per_file and max_rows_per_file and min_rows_per_file > max_rows_per_file:
            raise ValueError(
                f"min_rows_per_file={min_rows_per_file} is more than "
                f"max_rows_per_file={max_rows_per_file}"
            )
        super().__init__(path, **file_datasink_kwargs)
        self._min_rows, self._max_rows = min_rows_per_file, max_rows_per_file

    def _together(self, blocks: Iterable[Any]) -> Iterable[Any]:
        """The blocks, put together until each has min_rows_per_file; what is left at the end goes
        with the last."""
        least = self._min_rows
        if least is None:
            yield from blocks
            return
        ready: list[Any] = []
        more: list[Any] = []
        for table in blocks:
            more.append(table)
            if sum(one.num_rows for one in more) >= least:
                if ready:
                    yield concat(ready)
                ready, more = more, []
        if ready or more:
            yield concat([*ready, *more])

    @property
    def min_rows_per_write(self) -> int | None:
        """How many rows a file should have, at least."""
        return self._min_rows

    def write_block_to_file(self, block: BlockAccessor, file: Any) -> None:
        """Writes one block.

        Args:
            block: of rows.
            file: open for writing.
        """
        raise NotImplementedError(f"{type(self).__name__} has no write_block_to_file")

    def write_block(
        self,
        block: BlockAccessor,
        block_index: int,
        ctx: TaskContext,
        written: list[tuple[str, str]],
    ) -> None:
        """Writes a file, or several where max_rows_per_file says so.

        Args:
            block: of rows.
            block_index: of the block in the task.
            ctx: the task.
            written: takes the files, as of write.
        """
        table = block.to_arrow()
        name = self.filename_provider.get_filename_for_block(
            table, self.write_uuid, ctx.task_idx, block_index
        )
        self.write_table(table, name, written)

    def write_table(self, table: Any, name: str, written: list[tuple[str, str]]) -> None:
        """Writes a table under a name, cut by max_rows_per_file.

        Args:
            table: a pa.Table.
            name: below the folder.
            written: takes the files, as of write.
        """
        rows = self._max_rows or table.num_rows
        for part, start in enumerate(range(0, table.num_rows, rows)):
            base, dot, end = name.rpartition(".")
            cut = f"{base or end}-{part:06}{dot + end if base else ''}"
            piece = slice_rows(table, start, rows)

            fill = functools.partial(self.write_block_to_file, BlockAccessor(piece))
            self.write_file(name if table.num_rows <= rows else cut, fill, written)
