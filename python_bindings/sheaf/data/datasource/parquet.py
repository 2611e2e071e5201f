# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Parquet: tasks are ranges of row groups of about equal bytes, sizes and rows come from footers,
and only the columns and row groups that are asked for are read, a batch at a time."""

from __future__ import annotations

import concurrent.futures
import copy
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data import arrow_types
from sheaf.data.block import BlockMetadata, empty_rows
from sheaf.data.datasource import filesystems
from sheaf.data.datasource.datasource import Datasource, ReadTask, balanced
from sheaf.data.datasource.file_based import find_files
from sheaf.data.datasource.partitioning import Partitioning, PathPartitionFilter, with_constants
from sheaf.data.errors import FileFormatError
from sheaf.data.schema import check_columns, unify_schemas

__all__ = ["ParquetDatasource"]

_BATCH_BYTES = 16 << 20  # What a task decodes at a time.
_FOOTERS_AT_ONCE = 16


@dataclasses.dataclass(frozen=True)
class _Group:
    """One row group: its file, its number there, its rows, and its bytes by columns of the file."""

    path: str
    number: int
    rows: int
    column_bytes: dict[str, int]


class ParquetDatasource(Datasource):
    """Files of Parquet.

    Args:
        paths: of files or folders.
        columns: to read, in this order; None: all.
        dataset_kwargs: has no effect.
        to_batch_kwargs: "batch_size" in rows, which otherwise follows from bytes; others have none.
        filesystem: of pyarrow or fsspec.
        schema: of the result; that of all files together when not given.
        meta_provider: has no effect.
        partition_filter: chooses files by their paths.
        partitioning: values in paths that become columns; they are whole numbers when all look so.
        shuffle: "files" or a FileShuffleConfig.
        include_paths: adds a column "path".
        file_extensions: only files that end in one of these are read.
        ignore_missing_paths: leaves out paths that do not exist.
    """

    def __init__(
        self,
        paths: Any,
        *,
        columns: Sequence[str] | None = None,
        dataset_kwargs: dict[str, Any] | None = None,
        to_batch_kwargs: dict[str, Any] | None = None,
        filesystem: Any = None,
        schema: Any = None,
        meta_provider: Any = None,
        partition_filter: PathPartitionFilter | None = None,
        partitioning: Partitioning | None = Partitioning("hive"),  # noqa: B008
        shuffle: Any = None,
        include_paths: bool = False,
        file_extensions: Sequence[str] | None = ("parquet",),
        ignore_missing_paths: bool = False,
    ):
        self._filesystem, files = find_files(
            paths,
            filesystem,
            extensions=file_extensions,
            partition_filter=partition_filter,
            ignore_missing_paths=ignore_missing_paths,
            shuffle=shuffle,
        )
        self._batch_size = (to_batch_kwargs or {}).get("batch_size")
        self._ignore_missing_paths = ignore_missing_paths
        self._predicate: Any = None
        footers = self._footers([info.path for info in files])
        self._groups = [group for path, footer in footers for group in _groups(path, footer)]
        found = [path for path, _ in footers]
        self._constants = self._constants_of(found, partitioning, include_paths)
        physical = unify_schemas(
            [footer.schema.to_arrow_schema().remove_metadata() for _, footer in footers],
            [path for path, _ in footers],
        )
        self._physical = schema if schema is not None else physical
        self._columns = list(columns) if columns is not None else self._all_columns()
        check_columns(self._columns, self._all_columns(), "read_parquet")

    def _footers(self, paths: list[str]) -> list[tuple[str, Any]]:
        with concurrent.futures.ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            found = list(zip(paths, pool.map(self._footer, paths)))
        return [(path, footer) for path, footer in found if footer is not None]

    def _footer(self, path: str) -> Any:
        import pyarrow.parquet as pq

        def read() -> Any:
            with self._filesystem.open_input_file(path) as file:
                return pq.read_metadata(file)

        try:
            return filesystems.retried(read, path)
        except FileNotFoundError:
            if self._ignore_missing_paths:
                return None
            raise
        except (pa.ArrowInvalid, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise FileFormatError(path, f"not a whole Parquet file: {error}") from error

    def _constants_of(
        self, paths: list[str], partitioning: Partitioning | None, include_paths: bool
    ) -> dict[str, dict[str, Any]]:
        found = {path: partitioning.values(path) if partitioning else {} for path in paths}
        typed = (partitioning.field_types if partitioning else None) or {}
        names = dict.fromkeys(name for values in found.values() for name in values)
        for name in names:
            texts = [values.get(name) for values in found.values()]
            whole = all(text is None or _is_whole(text) for text in texts) and name not in typed
            for values in found.values():
                text = values.setdefault(name, None)
                values[name] = int(text) if whole and text is not None else text
        for path, values in found.items():
            if include_paths:
                values["path"] = path
        return found

    def _constant_types(self) -> dict[str, Any]:
        names = dict.fromkeys(name for values in self._constants.values() for name in values)
        return {
            name: pa.array([values[name] for values in self._constants.values()]).type
            for name in names
        }

    def _all_columns(self) -> list[str]:
        constants = self._constant_types()
        return [*(name for name in self._physical.names if name not in constants), *constants]

    def schema(self) -> Any:
        """Returns the pa.Schema of the result, from the footers."""
        constants = self._constant_types()
        fields = []
        for name in self._columns:
            kind = constants[name] if name in constants else self._physical.field(name).type
            if isinstance(kind, arrow_types.PickledObjectType):
                kind = kind.storage_type
            fields.append(pa.field(name, kind))
        return pa.schema(fields)

    def num_rows(self) -> int | None:
        """Returns how many rows there are, from the footers; None when rows are filtered."""
        return None if self._predicate is not None else sum(group.rows for group in self._groups)

    def _group_bytes(self, group: _Group) -> int:
        fixed = 0
        for name in self._columns:
            width = 8
            if name in group.column_bytes:
                kind = self._physical.field(name).type
                width = kind.bit_width // 8 if pa.types.is_primitive(kind) else 0
            fixed += max(group.column_bytes.get(name, 0), width * group.rows)
        return fixed

    def estimate_inmemory_data_size(self) -> int:
        """Returns about how many bytes the columns that are read take, from the footers."""
        return sum(map(self._group_bytes, self._groups))

    def input_files(self) -> list[str]:
        """Returns the paths of all files."""
        return list(self._constants)

    def supports_projection(self) -> bool:
        """Returns True."""
        return True

    def with_projection(self, columns: Sequence[str]) -> ParquetDatasource:
        """The same files, with some of the columns.

        Args:
            columns: their names, in the order of the result.

        Returns:
            Another source.
        """
        check_columns(columns, self._columns, "read_parquet")
        other = copy.copy(self)
        other._columns = list(columns)
        return other

    def supports_predicate(self, expression: Any) -> bool:
        """Whether the expression has a form that Parquet readers filter by, over columns of the
        files.

        Args:
            expression: of sheaf.data.expressions.

        Returns:
            Whether it does.
        """
        filter_of = getattr(expression, "to_parquet_filter", lambda: None)()
        if filter_of is None:
            return False
        return set(expression.columns()) <= set(self._physical.names) - set(self._constant_types())

    def with_predicate(self, expression: Any) -> ParquetDatasource:
        """The same files without the rows for which the expression is not true.

        Args:
            expression: one that supports_predicate accepts.

        Returns:
            Another source.
        """
        found = expression.to_parquet_filter()
        other = copy.copy(self)
        other._predicate = found if self._predicate is None else self._predicate & found
        return other

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks, each with a run of row groups.

        Args:
            parallelism: about how many are wanted; there are no more than row groups.
            per_task_row_limit: no task gives more rows than this.
            data_context: has no effect.

        Returns:
            The tasks.
        """
        sizes = [self._group_bytes(group) for group in self._groups]
        schema = self.schema()
        tasks = []
        for part in balanced(sizes, parallelism):
            groups = self._groups[part.start : part.stop]
            size = sum(sizes[part.start : part.stop])
            rows = sum(group.rows for group in groups)
            files = list(dict.fromkeys(group.path for group in groups))
            known = None if self._predicate is not None else rows
            metadata = BlockMetadata(known, size, schema, files)
            runs = [(path, [g.number for g in groups if g.path == path]) for path in files]
            read = functools.partial(
                _read_runs,
                self._reading(max(1, size // max(1, rows))),
                runs,
                {path: self._constants[path] for path in files},
            )
            tasks.append(ReadTask(read, metadata, schema, per_task_row_limit))
        return tasks

    def _reading(self, row_bytes: int) -> _Reading:
        physical = [name for name in self._columns if name not in self._constant_types()]
        rows = self._batch_size or min(max(_BATCH_BYTES // row_bytes, 1), 1 << 17)
        return _Reading(
            self._filesystem, self._physical, physical, self.schema(), self._predicate, rows
        )


@dataclasses.dataclass(frozen=True)
class _Reading:
    """How a task reads: from where, as what, which columns and rows, how many at a time."""

    filesystem: Any
    physical: Any
    columns: list[str]
    result: Any
    predicate: Any
    batch_rows: int


def _is_whole(text: Any) -> bool:
    return isinstance(text, str) and text.lstrip("-").isdigit() and (text == str(int(text)))


def _groups(path: str, footer: Any) -> Iterator[_Group]:
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        sizes: dict[str, int] = {}
        for place in range(group.num_columns):
            column = group.column(place)
            name = column.path_in_schema.partition(".")[0]
            sizes[name] = sizes.get(name, 0) + column.total_uncompressed_size
        yield _Group(path, number, group.num_rows, sizes)


def _read_runs(
    reading: _Reading, runs: list[tuple[str, list[int]]], constants: dict[str, dict[str, Any]]
) -> Iterator[Any]:
    for path, numbers in runs:
        read = functools.partial(_read_run, reading, path, numbers)
        for table in filesystems.stream_retried(read, path):
            table = with_constants(table, constants[path]).select(reading.result.names)
            yield _plain(table).cast(reading.result) if table.num_columns else table
    if not runs:
        yield reading.result.empty_table()


def _plain(table: Any) -> Any:
    """Pickled objects as their bytes: reading a file never runs what its writer pickled."""
    for place, field in enumerate(table.schema):
        if isinstance(field.type, arrow_types.PickledObjectType):
            chunks = [chunk.storage for chunk in table.column(place).chunks]
            column = pa.chunked_array(chunks, field.type.storage_type)
            table = table.set_column(place, field.name, column)
    return table


def _read_run(reading: _Reading, path: str, numbers: list[int]) -> Iterator[Any]:
    import pyarrow.dataset as ds

    try:
        files = ds.ParquetFileFormat()
        whole = files.make_fragment(path, reading.filesystem, row_groups=numbers)
        # One at a time: with a filter, a scan of several gives them in the order of a hash table.
        groups = sorted(whole.split_by_row_group(), key=lambda group: group.row_groups[0].id)
        for number, group in enumerate(groups):
            scanner = group.scanner(
                schema=reading.physical,
                columns=reading.columns,
                filter=reading.predicate,
                batch_size=reading.batch_rows,
                batch_readahead=2,
                fragment_readahead=1,
                use_threads=False,
            )
            for batch in scanner.to_batches():
                if not batch.num_columns:
                    yield empty_rows(batch.num_rows)
                elif batch.num_rows or not number:  # One without rows, for its schema.
                    yield pa.Table.from_batches([batch])
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FileFormatError(path, f"damaged Parquet file: {error}") from error
