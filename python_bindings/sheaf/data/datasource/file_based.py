# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sources that are files. A task reads some of them, from the beginning to the end, or a piece of a
large one where its format allows that."""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data.block import BlockMetadata, batch_to_table
from sheaf.data.datasource import filesystems
from sheaf.data.datasource.datasource import Datasource, OneByOne, ReadTask, balanced
from sheaf.data.datasource.listing import find_files
from sheaf.data.datasource.partitioning import Partitioning, PathPartitionFilter, with_constants
from sheaf.data.datasource.pieces import PIECE_BYTES, Piece, cut, is_plain, lines_before, lines_of
from sheaf.data.errors import DataError, FileFormatError
from sheaf.data.schema import FILE_KEY
from sheaf.data.user_code import is_users, take_batch

__all__ = ["FileBasedDatasource", "FileShuffleConfig"]

_LOOKS_AT_ONCE = 16  # At beginnings of large files.
_MOST_FILES = 1000  # Of a task, so that the first rows of many small files come soon.


@dataclasses.dataclass
class FileShuffleConfig:
    """Files are read in random order.

    Attributes:
        seed: the same gives the same orders; None: another at each run.
        reseed_after_execution: whether each run of a dataset has another order, which follows from
            `seed` and the number of the run.
    """

    seed: int | None = None
    reseed_after_execution: bool = True

    def get_seed(self, execution_idx: int = 0) -> int | None:
        """The seed of one run.

        Args:
            execution_idx: the number of the run, from 0.

        Returns:
            The seed.
        """
        if self.seed is None or not self.reseed_after_execution:
            return self.seed
        return hash((self.seed, execution_idx))


class FileOrder:
    """The order of files in each run of one source and of what is made of it.

    Args:
        shuffle: "files" or a FileShuffleConfig; None: they keep their order.

    Raises:
        ValueError: it is something else.
    """

    def __init__(self, shuffle: Any) -> None:
        if not (shuffle is None or shuffle == "files" or isinstance(shuffle, FileShuffleConfig)):
            raise ValueError(f"shuffle={shuffle!r}: want None, 'files' or a FileShuffleConfig")
        self._config = FileShuffleConfig() if shuffle == "files" else shuffle
        self._runs = 0

    def __bool__(self) -> bool:
        return self._config is not None

    def next(self, files: Sequence[Any]) -> list[Any]:
        """The files in the order of the next run.

        Args:
            files: all, in the same order at each call.

        Returns:
            The list.
        """
        files = list(files)
        if self._config is not None:
            random.Random(self._config.get_seed(self._runs)).shuffle(files)
            self._runs += 1
        return files


class FileBasedDatasource(Datasource):
    """Files, one behind the other. Derive from it and define _read_stream.

    Args:
        paths: of files or folders, one or several.
        filesystem: of pyarrow or fsspec; by the scheme of the paths when not given.
        schema: of the blocks.
        open_stream_args: handed to the file system's open_input_stream; "compression" is found by
            the name when not given.
        meta_provider: has no effect.
        partition_filter: chooses files by their paths.
        partitioning: values in paths that become columns.
        ignore_missing_paths: files that do not exist, or vanish before they are read, are left out.
        shuffle: "files" or a FileShuffleConfig: files are read in random order, another at each
            run.
        include_paths: adds a column "path".
        file_extensions: only files that end in one of these are read.
    """

    _FILE_EXTENSIONS: Any = None  # Of the format, when the caller names none.
    _COMPRESSED = True  # Whether ".gz" and so on is undone.

    def __init__(
        self,
        paths: Any,
        *,
        filesystem: Any = None,
        schema: Any = None,
        open_stream_args: dict[str, Any] | None = None,
        meta_provider: Any = None,
        partition_filter: PathPartitionFilter | None = None,
        partitioning: Partitioning | None = None,
        ignore_missing_paths: bool = False,
        shuffle: Any = None,
        include_paths: bool = False,
        file_extensions: Sequence[str] | None = None,
    ):
        self._order = FileOrder(shuffle)
        extensions = file_extensions if file_extensions is not None else self._FILE_EXTENSIONS
        self._filesystem, self._listing = find_files(
            paths,
            filesystem,
            extensions=[extensions] if isinstance(extensions, str) else extensions,
            partition_filter=partition_filter,
            ignore_missing_paths=ignore_missing_paths,
        )
        self._schema = schema
        self._open_stream_args = dict(open_stream_args or {})
        self._partitioning = partitioning
        self._ignore_missing_paths = ignore_missing_paths
        self._include_paths = include_paths

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        """Gives the blocks of one file. `f` is open for reading from its beginning; it can seek
        only where _open_input_source says so."""
        raise NotImplementedError(f"{type(self).__name__} has no _read_stream")

    def _open_input_source(self, filesystem: Any, path: str, **open_args: Any) -> Any:
        args = {**self._open_stream_args, **open_args}
        if not self._COMPRESSED:
            args.setdefault("compression", None)
        return filesystem.open_input_stream(path, **args)

    def _rows_per_file(self) -> int | None:
        """How many rows each file has, when that is the same for all."""
        return None

    @property
    def _files(self) -> list[filesystems.FileInfo]:
        """All, when the listing has ended."""
        return self._listing.all()

    def input_files(self) -> list[str]:
        """Returns the paths of all files, in the order in which they lie."""
        return [info.path for info in self._files]

    def is_listed(self) -> bool:
        """Returns whether all files have been found, so that nothing here waits for them."""
        return self._listing.is_complete()

    def estimate_inmemory_data_size(self) -> int | None:
        """Returns the bytes of the files together; None when a file system does not say."""
        sizes = [info.size for info in self._files]
        return None if None in sizes else sum(size for size in sizes if size)

    def least_read_tasks(self) -> int:
        """Returns how many tasks there are at least, where the caller does not say how many."""
        return -(-len(self._files) // _MOST_FILES)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks, each with some of the files.

        Args:
            parallelism: about how many are wanted.
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
        reader, units = self._reader(), self._pieces(self._order.next(self._files))

        def task(part: range) -> ReadTask:
            return self._task(reader, units[part.start : part.stop], per_task_row_limit)

        return OneByOne(task, balanced([unit.size or 0 for unit in units], parallelism))

    def streamed_read_tasks(self, data_context: Any) -> Iterator[list[ReadTask]] | None:
        """Read tasks of files that are being found still, the first soon.

        Args:
            data_context: says how large blocks are.

        Returns:
            What gives lists of them; None where all files are known, or their order is not that
            in which they are found.
        """
        if self._order or self._listing.is_complete():
            return None
        return self._as_found(data_context)

    def _as_found(self, context: Any) -> Iterator[list[ReadTask]]:
        """Of each part of the listing tasks of about a hundredth of all that has been found so far,
        since nobody knows how much there will be."""
        reader, seen = self._reader(), 0
        most = int(context.target_max_block_size or 1 << 62)
        for part in self._listing.parts():
            units = self._pieces(part)
            sizes = [unit.size or 0 for unit in units]
            seen += sum(sizes)
            each = max(int(context.target_min_block_size), min(seen // 100, most))
            count = max(-(-sum(sizes) // each), -(-len(units) // _MOST_FILES))
            runs = balanced(sizes, count)
            yield [self._task(reader, units[run.start : run.stop], None) for run in runs]

    def _reader(self) -> FileBasedDatasource:
        """What goes with every task, so without the list of all files."""
        reader = copy.copy(self)
        del reader._listing
        return reader

    def _task(self, reader: Any, units: Sequence[Any], row_limit: int | None) -> ReadTask:
        each = self._rows_per_file()
        files = list(dict.fromkeys(unit.path for unit in units))
        metadata = BlockMetadata(
            num_rows=None if each is None else each * len(files),
            size_bytes=sum(unit.size or 0 for unit in units),
            schema=self._schema,
            input_files=files,
        )
        # Whole files by their names alone, which pickle much faster.
        read = functools.partial(
            reader._read_pieces, [unit if isinstance(unit, Piece) else unit.path for unit in units]
        )
        return ReadTask(read, metadata, self._schema, row_limit)

    def _beginning(self, file: Any) -> Any:
        """What the beginning of a large file tells that its pieces need to know. None: it cannot be
        read in pieces, which end at line ends.

        Args:
            file: open for reading anywhere.
        """
        return None

    def _pieces(self, files: Sequence[filesystems.FileInfo]) -> list[Piece | filesystems.FileInfo]:
        """Files, those that are read in pieces as these."""
        large = [info for info in files if (info.size or 0) > PIECE_BYTES]
        if type(self)._beginning is FileBasedDatasource._beginning or self._open_stream_args:
            large = []
        known: dict[str, Any] = {}
        if large:
            with concurrent.futures.ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
                known = dict(zip((info.path for info in large), pool.map(self._known, large)))
        units: list[Piece | filesystems.FileInfo] = []
        for info in files:
            if known.get(info.path) is None:
                units.append(info)
            else:
                units += cut(info.path, info.size or 0, known[info.path])
        return units

    def _known(self, info: filesystems.FileInfo) -> Any:
        if not is_plain(info.path):
            return None
        try:
            with self._filesystem.open_input_file(info.path) as file:
                return self._beginning(file)
        except (OSError, pa.ArrowException, ValueError):  # The task that reads it will say.
            return None

    def _read_pieces(self, units: list[Piece | str]) -> Iterator[Any]:
        for given in units:
            unit = Piece(given) if isinstance(given, str) else given
            try:
                yield from filesystems.stream_retried(
                    functools.partial(self._read_file, unit), unit.path
                )
            except FileNotFoundError:
                if not self._ignore_missing_paths:
                    raise

    def _read_file(self, unit: Piece) -> Iterator[Any]:
        path = unit.path
        constants: dict[str, Any] = self._partitioning.values(path) if self._partitioning else {}
        if self._include_paths:
            constants["path"] = path
        with self._opened(unit) as file:
            try:
                given = iter(self._read_piece(file, unit))
                while box := list(itertools.islice(given, 1)):
                    table = take_batch(box) if is_users(type(self)) else batch_to_table(box[0])
                    table = with_constants(table, constants)
                    yield table.replace_schema_metadata({FILE_KEY: path})
            except (DataError, FileNotFoundError, GeneratorExit):
                raise
            except (pa.ArrowInvalid, ValueError, EOFError, OSError) as error:
                if isinstance(error, OSError) and not filesystems.is_damage(error):
                    raise
                raise FileFormatError(path, f"{type(error).__name__}: {error}") from error

    def _opened(self, unit: Piece) -> Any:
        if unit.stop is None:
            return self._open_input_source(self._filesystem, unit.path)
        return self._filesystem.open_input_file(unit.path)

    def _read_piece(self, file: Any, unit: Piece) -> Iterator[Any]:
        """Gives the blocks of a piece; `file` is as _opened gives it."""
        if unit.stop is None:
            yield from self._read_stream(file, unit.path)
            return
        lines = lines_of(file, unit)
        if lines is None:
            return
        try:
            yield from self._read_lines(lines, unit)
        except FileFormatError as error:
            if not unit.start or error.line is None:
                raise
            line = error.line + lines_before(file, unit)
            raise FileFormatError(error.path, error.problem, line) from error

    def _read_lines(self, lines: Any, unit: Piece) -> Iterator[Any]:
        """As _read_stream, of the lines of a piece."""
        yield from self._read_stream(lines, unit.path)
