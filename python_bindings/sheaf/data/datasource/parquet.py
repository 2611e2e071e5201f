# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Parquet: tasks are ranges of row groups of about equal bytes, sizes and rows come from footers,
and only the columns and row groups that are asked for are read, a batch at a time."""

from __future__ import annotations

import bisect
import concurrent.futures
import copy
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data import arrow_types
from sheaf.data.block import BlockMetadata, empty_rows
from sheaf.data.datasource import filesystems
from sheaf.data.datasource.datasource import Datasource, OneByOne, ReadTask, balanced
from sheaf.data.datasource.file_based import FileOrder
from sheaf.data.datasource.listing import find_files
from sheaf.data.datasource.partitioning import Partitioning, PathPartitionFilter, with_constants
from sheaf.data.datasource.row_groups import matching, of_footer
from sheaf.data.errors import FileFormatError
from sheaf.data.schema import check_columns, conform, unify_schemas

__all__ = ["ParquetDatasource"]

_BATCH_BYTES = 16 << 20  # What a task decodes at a time.
_FOOTERS_AT_ONCE = 16
_BUFFER_BYTES = 64 << 10  # Of each column.
_AHEAD_BYTES = 64 << 20  # Row groups up to this are fetched whole from other machines.


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
        self._order = FileOrder(shuffle)
        self._filesystem, files = find_files(
            paths,
            filesystem,
            extensions=file_extensions,
            partition_filter=partition_filter,
            ignore_missing_paths=ignore_missing_paths,
        )
        self._batch_size = (to_batch_kwargs or {}).get("batch_size")
        self._ignore_missing_paths = ignore_missing_paths
        self._filter: Any = None  # As the expression of the plan.
        self._row_limit: int | None = None
        footers = self._footers([info.path for info in files.all()])
        self._groups = [group for path, footer in footers for group in of_footer(path, footer)]
        self._all_groups = len(self._groups)
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
            if isinstance(error, OSError) and not filesystems.is_damage(error):
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
        return None if self._filter is not None else sum(group.rows for group in self._groups)

    def details(self) -> str:
        """Returns which columns, rows and row groups it reads, where that is not all."""
        found = []
        if self._columns != self._all_columns():
            found.append(f"columns={self._columns}")
        if self._filter is not None:
            found.append(f"filter={self._filter}")
        if len(self._groups) < self._all_groups:
            found.append(f"{len(self._groups)} of {self._all_groups} row groups")
        return f"({', '.join(found)})" if found else ""

    @functools.cached_property
    def _sizes(self) -> list[int]:
        """Bytes of each row group, about: of columns whose values all have one width at least
        these, as the file has few bytes of values that repeat."""
        read = self._physical_columns()
        types = {name: self._physical.field(name).type for name in read}
        constants = len(set(self._columns) - set(read))
        widths = {
            name: kind.bit_width // 8 if pa.types.is_primitive(kind) else 0
            for name, kind in types.items()
        }
        sizes = []
        for group in self._groups:
            stored = group.column_bytes(list(types))
            whole = (max(stored.get(name, 0), each * group.rows) for name, each in widths.items())
            sizes.append(sum(whole) + 8 * constants * group.rows)
        return sizes

    def _physical_columns(self) -> list[str]:
        """Those that are read from the files: of the result, and for the filter."""
        wanted = dict.fromkeys(self._columns)
        if self._filter is not None:
            wanted.update(dict.fromkeys(sorted(self._filter.columns())))
        constants = self._constant_types()
        return [name for name in wanted if name not in constants]

    def estimate_inmemory_data_size(self) -> int:
        """Returns about how many bytes the columns that are read take, from the footers."""
        return sum(self._sizes)

    def _changed(self, **fields: Any) -> ParquetDatasource:
        other = copy.copy(self)
        other.__dict__.pop("_sizes", None)
        other.__dict__.update(fields)
        return other

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
        return self._changed(_columns=list(columns))

    def supports_predicate(self, expression: Any) -> bool:
        """Whether the expression has a form that statistics are understood by, over columns that
        are read.

        Args:
            expression: of sheaf.data.expressions.

        Returns:
            Whether it does.
        """
        if expression.to_parquet_filter() is None or not expression.columns() <= set(self._columns):
            return False
        kind = expression.get_type(self.schema())
        return kind is not None and bool(pa.types.is_boolean(kind))

    def with_predicate(self, expression: Any) -> ParquetDatasource:
        """The same files without the rows for which the expression is not true; files and row
        groups that have none, by their paths and statistics, are not read.

        Args:
            expression: one that supports_predicate accepts.

        Returns:
            Another source.
        """
        schema, columns, groups = self.schema(), sorted(expression.columns()), self._groups
        # Statistics leave out NaN, for which these may be true.
        floats = any(pa.types.is_floating(schema.field(name).type) for name in columns)
        if not (floats and expression.kernels() & {"not_equal", "invert", "is_in"}):
            predicate = expression.to_parquet_filter()
            groups = matching(groups, predicate, columns, schema, self._constants)
        both = expression if self._filter is None else self._filter & expression
        return self._changed(_filter=both, _groups=groups)

    def with_row_limit(self, rows: int) -> ParquetDatasource:
        """The same files up to the row group that has the last of these rows; all where rows are
        filtered, of which only reading tells how many are left, or come in
        another order at each run.

        Args:
            rows: how many.

        Returns:
            Another source.
        """
        if self._filter is not None or self._order:
            return self._changed(_row_limit=rows)
        ends = list(itertools.accumulate(group.rows for group in self._groups))
        return self._changed(
            _groups=self._groups[: bisect.bisect_left(ends, rows) + 1], _row_limit=rows
        )

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
        schema = self.schema()
        places = {path: at for at, path in enumerate(self._order.next(list(self._constants)))}
        order = sorted(range(len(self._groups)), key=lambda n: places[self._groups[n].path])
        every, sizes = [self._groups[n] for n in order], [self._sizes[n] for n in order]

        def task(part: range) -> ReadTask:
            groups = every[part.start : part.stop]
            size = sum(sizes[part.start : part.stop])
            rows = sum(group.rows for group in groups)
            files = list(dict.fromkeys(group.path for group in groups))
            known = None if self._filter is not None else rows
            metadata = BlockMetadata(known, size, schema, files)
            runs = [(path, [g.number for g in groups if g.path == path]) for path in files]
            read = functools.partial(
                _read_runs,
                self._reading(
                    max(1, size // max(1, rows)), max((group.rows for group in groups), default=0)
                ),
                runs,
                {path: self._constants[path] for path in files},
            )
            return ReadTask(read, metadata, schema, per_task_row_limit)

        # One gives the schema at least.
        return OneByOne(task, balanced(sizes, parallelism) or [range(0)])

    def _reading(self, row_bytes: int, largest: int) -> _Reading:
        rows = self._batch_size or min(max(_BATCH_BYTES // row_bytes, 1), 1 << 17)
        local = filesystems.is_local(self._filesystem)
        read = self._physical_columns()
        return _Reading(
            self._filesystem,
            pa.schema([self._physical.field(name) for name in read]),
            self.schema(),
            self._filter,
            rows if self._row_limit is None else max(1, min(rows, self._row_limit)),
            ahead=not local and self._row_limit is None and row_bytes * largest < _AHEAD_BYTES,
            may_vanish=self._ignore_missing_paths,
        )


@dataclasses.dataclass(frozen=True)
class _Reading:
    """How a task reads: from where, which columns as what, the schema and filter of the result, how
    many rows at a time; whether all of a row group is fetched ahead, in few requests; whether a
    file that is not there any more is left out."""

    filesystem: Any
    physical: Any
    result: Any
    filter: Any
    batch_rows: int
    ahead: bool
    may_vanish: bool


def _is_whole(text: Any) -> bool:
    return isinstance(text, str) and text.lstrip("-").isdigit() and (text == str(int(text)))


def _read_runs(
    reading: _Reading, runs: list[tuple[str, list[int]]], constants: dict[str, dict[str, Any]]
) -> Iterator[Any]:
    for path, numbers in runs:
        read = functools.partial(_read_run, reading, path, numbers)
        for table in filesystems.stream_retried(read, path):
            table = _plain(with_constants(conform(table, reading.physical), constants[path]))
            if reading.filter is not None:
                table = table.filter(reading.filter.evaluate(table))
            table = table.select(reading.result.names)
            yield table.cast(reading.result) if table.num_columns else table
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
    """The columns of some row groups that the file has, a batch at a time: only its pages and one
    buffer for each column are in memory, however large a row group is."""
    import pyarrow.parquet as pq

    try:
        with reading.filesystem.open_input_file(path) as source:
            file = pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=reading.ahead)
            there = set(file.schema_arrow.names)
            columns = [name for name in reading.physical.names if name in there]
            if not columns:
                yield empty_rows(sum(file.metadata.row_group(n).num_rows for n in numbers))
                return
            if not any(file.metadata.row_group(number).num_rows for number in numbers):
                yield file.schema_arrow.empty_table().select(columns)
            for number in numbers:
                for batch in file.iter_batches(
                    reading.batch_rows, row_groups=[number], columns=columns, use_threads=False
                ):
                    yield pa.Table.from_batches([batch])
    except FileNotFoundError:
        if not reading.may_vanish:
            raise
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and not filesystems.is_damage(error):
            raise
        raise FileFormatError(path, f"damaged Parquet file: {error}") from error
