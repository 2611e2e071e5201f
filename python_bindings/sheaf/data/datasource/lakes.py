# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tables that transactions change, each by the library of its format: Delta Lake, Iceberg, Lance.
All tasks of a dataset read the version that was the newest when it was made, or the one asked for.
"""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data.block import BlockMetadata
from sheaf.data.datasource.datasource import Datasource, ReadTask, balanced
from sheaf.data.errors import MissingPackageError
from sheaf.data.schema import check_columns

__all__ = ["DeltaDatasource", "IcebergDatasource", "LanceDatasource"]

_BATCH_ROWS = 1 << 17


def _library(what: str, module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(what, package) from error


class _Table(Datasource):
    """A table in parts, whose schema is known; a task reads some of them."""

    _parts: Sequence[Any]  # What says where they are; each pickles.
    _sizes: Sequence[int]
    _rows: int | None
    _schema: Any
    _columns: list[str]

    def _reader(self) -> Callable[[Sequence[Any]], Iterator[Any]]:
        """A function that pickles, and gives the batches of some parts."""
        raise NotImplementedError

    def schema(self) -> Any:
        """Returns the pa.Schema of the columns that are read."""
        return pa.schema([self._schema.field(name) for name in self._columns])

    def num_rows(self) -> int | None:
        """Returns how many rows there are, where the table says so."""
        return self._rows

    def estimate_inmemory_data_size(self) -> int | None:
        """Returns the bytes of its files, by the share of the columns; None: the table does not
        say."""
        share = len(self._columns) / max(1, len(self._schema.names))
        return int(sum(self._sizes) * share) or None

    def supports_projection(self) -> bool:
        """Returns True."""
        return True

    def with_projection(self, columns: Sequence[str]) -> Datasource:
        """The same table with some of its columns.

        Args:
            columns: their names, in the order of the result.

        Returns:
            Another source.
        """
        check_columns(columns, self._columns, self.get_name())
        other = copy.copy(self)
        other._columns = list(columns)
        return other

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """The tasks, each with some parts.

        Args:
            parallelism: about how many are wanted; there are no more than parts.
            per_task_row_limit: no task gives more rows than this.
            data_context: has no effect.

        Returns:
            The tasks.
        """
        schema, read = self.schema(), self._reader()
        tasks = []
        for part in balanced(self._sizes, parallelism) or [range(0)]:
            own = list(self._parts[part.start : part.stop])
            size = sum(self._sizes[part.start : part.stop])
            reading = functools.partial(_tables, read, own, schema)
            tasks.append(
                ReadTask(reading, BlockMetadata(None, size, schema), schema, per_task_row_limit)
            )
        return tasks


def _tables(
    read: Callable[[Sequence[Any]], Iterator[Any]], parts: Sequence[Any], schema: Any
) -> Iterator[Any]:
    yield schema.empty_table()
    for batch in read(parts):
        yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)


class DeltaDatasource(_Table):
    """A table of Delta Lake, by the package deltalake.

    Args:
        path: of its folder, or its address.
        version: a number, a moment (datetime or ISO text); None: the newest.
        storage_options: of the store that has it.
        columns: which; None: all.
    """

    def __init__(
        self,
        path: Any,
        version: Any = None,
        storage_options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
    ):
        library = _library("read_delta", "deltalake", "deltalake")
        options = dict(storage_options) if storage_options else None
        table = library.DeltaTable(path, version=version, storage_options=options)
        files = table.to_pyarrow_dataset()
        self._parts = [
            (fragment.path, fragment.partition_expression) for fragment in files.get_fragments()
        ]
        self._filesystem, self._schema = files.filesystem, files.schema
        self._sizes = [
            max(0, info.size or 0)
            for info in files.filesystem.get_file_info([path for path, _ in self._parts])
        ]
        self._rows = None
        self._columns = list(columns) if columns is not None else list(self._schema.names)
        check_columns(self._columns, list(self._schema.names), "read_delta")

    def _reader(self) -> Callable[[Sequence[Any]], Iterator[Any]]:
        return functools.partial(_read_delta, self._filesystem, self._schema, self._columns)


def _read_delta(
    filesystem: Any, schema: Any, columns: list[str], parts: Sequence[Any]
) -> Iterator[Any]:
    from pyarrow import dataset

    form = dataset.ParquetFileFormat()
    for path, partition in parts:
        fragment = form.make_fragment(path, filesystem, partition_expression=partition)
        yield from fragment.to_batches(
            schema=schema, columns=columns, batch_size=_BATCH_ROWS, batch_readahead=1
        )


class LanceDatasource(_Table):
    """A table of Lance, by the package pylance.

    Args:
        uri: of its folder, or its address.
        version: a number or a tag; None: the newest.
        columns: which; None: all.
        filter: a condition in SQL.
        storage_options: of the store that has it.
        scanner_options: further ones of lance.LanceFragment.scanner.
    """

    def __init__(
        self,
        uri: Any,
        version: Any = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 - Ray's name.
        storage_options: Mapping[str, str] | None = None,
        scanner_options: Mapping[str, Any] | None = None,
    ):
        library = _library("read_lance", "lance", "pylance")
        options = dict(storage_options) if storage_options else None
        table = library.dataset(uri, version=version, storage_options=options)
        self._where = {"uri": uri, "version": table.version, "storage_options": options}
        self._scan = {**(scanner_options or {}), "filter": filter}
        fragments = table.get_fragments()
        self._parts = [fragment.fragment_id for fragment in fragments]
        rows = [fragment.count_rows() for fragment in fragments]
        self._schema = table.schema
        width = sum(
            kind.bit_width // 8 if pa.types.is_primitive(kind) else 32
            for kind in self._schema.types
        )
        self._sizes = [count * width for count in rows]
        narrowed = filter is not None or bool(scanner_options)
        self._rows = None if narrowed else sum(rows)
        self._columns = list(columns) if columns is not None else list(self._schema.names)
        check_columns(self._columns, list(self._schema.names), "read_lance")

    def _reader(self) -> Callable[[Sequence[Any]], Iterator[Any]]:
        return functools.partial(_read_lance, self._where, self._columns, self._scan)


def _read_lance(
    where: dict[str, Any], columns: list[str], scan: dict[str, Any], parts: Sequence[Any]
) -> Iterator[Any]:
    import lance

    table = lance.dataset(**where)
    for number in parts:
        yield from table.get_fragment(number).scanner(columns=columns, **scan).to_batches()


class IcebergDatasource(_Table):
    """A table of Iceberg, by the package pyiceberg.

    Args:
        table_identifier: "namespace.table".
        row_filter: an expression of pyiceberg, or its text; None: all rows.
        selected_fields: columns; ("*",): all.
        snapshot_id: which state; None: the newest.
        scan_kwargs: further ones of pyiceberg's Table.scan.
        catalog_kwargs: of pyiceberg.catalog.load_catalog.
    """

    def __init__(
        self,
        table_identifier: str,
        row_filter: Any = None,
        selected_fields: Sequence[str] = ("*",),
        snapshot_id: int | None = None,
        scan_kwargs: Mapping[str, Any] | None = None,
        catalog_kwargs: Mapping[str, Any] | None = None,
    ):
        library = _library("read_iceberg", "pyiceberg.catalog", "'pyiceberg[pyarrow]'")
        given = dict(catalog_kwargs or {})
        table = library.load_catalog(given.pop("name", "default"), **given).load_table(
            table_identifier
        )
        state = snapshot_id
        if state is None and (newest := table.current_snapshot()) is not None:
            state = newest.snapshot_id
        options = {**(scan_kwargs or {}), "snapshot_id": state}
        if row_filter is not None:
            options["row_filter"] = row_filter
        scan = table.scan(**options)
        self._parts = list(scan.plan_files())
        self._sizes = [task.file.file_size_in_bytes for task in self._parts]
        whole = row_filter is None and not any(task.delete_files for task in self._parts)
        plain = whole and not scan_kwargs
        self._rows = sum(task.file.record_count for task in self._parts) if plain else None
        self._scan = (table.metadata, table.io, scan.row_filter)
        self._names = scan.projection()
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        self._schema = schema_to_pyarrow(self._names, include_field_ids=False)
        known = list(self._schema.names)
        self._columns = known if "*" in selected_fields else list(selected_fields)
        check_columns(self._columns, known, "read_iceberg")

    def _reader(self) -> Callable[[Sequence[Any]], Iterator[Any]]:
        names = self._names.select(*self._columns)
        return functools.partial(_read_iceberg, self._scan, names)


def _read_iceberg(scan: Any, names: Any, parts: Sequence[Any]) -> Iterator[Any]:
    from pyiceberg.io.pyarrow import ArrowScan

    metadata, io, row_filter = scan
    yield from ArrowScan(metadata, io, names, row_filter).to_record_batches(parts)
