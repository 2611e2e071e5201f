# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What datasets are written as: Parquet, CSV, JSON, NumPy, images."""

from __future__ import annotations

import io
import json
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.aggregates.groups import Groups
from sheaf.data.aggregates.keys import movable
from sheaf.data.arrow_types import PickledObjectType, tensor_shape
from sheaf.data.block import BlockAccessor, combine, slice_rows, table_to_rows
from sheaf.data.columns import column_to_numpy
from sheaf.data.datasource.file_datasink import BlockBasedFileDatasink, RowBasedFileDatasink
from sheaf.data.errors import BatchError, MissingPackageError
from sheaf.data.schema import FILE_KEY, check_columns

__all__ = ["CSVDatasink", "ImageDatasink", "JSONDatasink", "NumpyDatasink", "ParquetDatasink"]


def _options(
    args_fn: Callable[[], dict[str, Any]] | None, args: dict[str, Any] | None
) -> dict[str, Any]:
    return {**(args or {}), **(args_fn() if args_fn else {})}


class ParquetDatasink(BlockBasedFileDatasink):
    """Files of Parquet.

    Args:
        path: of the folder.
        partition_cols: their values become folders, "year=2026", and leave the files.
        arrow_parquet_args_fn: gives arguments of pyarrow.parquet.write_table, in the task.
        arrow_parquet_args: such arguments.
        **file_datasink_kwargs: as of BlockBasedFileDatasink.
    """

    def __init__(
        self,
        path: str,
        *,
        partition_cols: Sequence[str] | None = None,
        arrow_parquet_args_fn: Callable[[], dict[str, Any]] | None = None,
        arrow_parquet_args: dict[str, Any] | None = None,
        **file_datasink_kwargs: Any,
    ):
        super().__init__(path, file_format="parquet", **file_datasink_kwargs)
        self._partition_cols = list(partition_cols or [])
        self._args_fn, self._args = arrow_parquet_args_fn, arrow_parquet_args

    def write_block_to_file(self, block: BlockAccessor, file: Any) -> None:
        """Writes one block.

        Args:
            block: of rows.
            file: open for writing.
        """
        import pyarrow.parquet as pq

        table = block.to_arrow()
        metadata = {key: v for key, v in (table.schema.metadata or {}).items() if key != FILE_KEY}
        table = table.replace_schema_metadata(metadata or None)
        for field in table.schema:
            _check_for_parquet(field.name, field.type)
        pq.write_table(table, file, **_options(self._args_fn, self._args))

    def write_table(self, table: Any, name: str, written: list[tuple[str, str]]) -> None:
        """Writes a table, into folders by its partitions.

        Args:
            table: a pa.Table.
            name: below the folder, or below each partition's.
            written: takes the files.
        """
        if not self._partition_cols:
            super().write_table(table, name, written)
            return
        check_columns(self._partition_cols, table.column_names, "write_parquet: partition_cols")
        rest = [column for column in table.column_names if column not in self._partition_cols]
        if not rest:
            raise ValueError("write_parquet: partition_cols has all columns; one must be left")
        groups = Groups(table.select(self._partition_cols), self._partition_cols)
        rows = movable(table.select(rest)).take(pa.array(groups.order))
        for key, start, count in zip(groups.keys.to_pylist(), groups.starts, groups.lengths):
            folder = "/".join(f"{column}={_quoted(value)}" for column, value in key.items())
            super().write_table(
                slice_rows(rows, int(start), int(count)), f"{folder}/{name}", written
            )


def _check_for_parquet(name: str, kind: Any) -> None:
    """Raises BatchError: Parquet would take it, but nobody could read what it was."""
    if isinstance(kind, PickledObjectType):
        raise BatchError(
            f"column '{name}' holds objects of Python, which Parquet cannot hold: leave it out by "
            "drop_columns, or make numbers, strings, bytes, lists or dicts of them"
        )
    shape = tensor_shape(kind) if isinstance(kind, pa.BaseExtensionType) else None
    if shape is not None and 0 in shape:
        raise BatchError(
            f"column '{name}' holds tensors of shape {tuple(shape)}, which have no elements: "
            "Parquet cannot hold them: leave it out by drop_columns"
        )
    if isinstance(kind, pa.BaseExtensionType):
        return
    if pa.types.is_fixed_size_list(kind) and not kind.list_size:
        raise BatchError(
            f"column '{name}' holds {kind}: Parquet cannot hold lists of the fixed size 0: cast "
            f"it to {pa.list_(kind.value_type)}, or leave it out by drop_columns"
        )
    for place in range(kind.num_fields):
        _check_for_parquet(name, kind.field(place).type)


def _quoted(value: Any) -> str:
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    return urllib.parse.quote(str(value), safe=" ")


class CSVDatasink(BlockBasedFileDatasink):
    """Files of comma-separated values.

    Args:
        path: of the folder.
        arrow_csv_args_fn: gives arguments of pyarrow.csv.write_csv, in the task.
        arrow_csv_args: such arguments.
        **file_datasink_kwargs: as of BlockBasedFileDatasink.
    """

    def __init__(
        self,
        path: str,
        *,
        arrow_csv_args_fn: Callable[[], dict[str, Any]] | None = None,
        arrow_csv_args: dict[str, Any] | None = None,
        **file_datasink_kwargs: Any,
    ):
        super().__init__(path, file_format="csv", **file_datasink_kwargs)
        self._args_fn, self._args = arrow_csv_args_fn, arrow_csv_args

    def write_block_to_file(self, block: BlockAccessor, file: Any) -> None:
        """Writes one block.

        Args:
            block: of rows.
            file: open for writing.
        """
        from pyarrow import csv

        table = block.to_arrow()
        for field in table.schema:
            if pa.types.is_nested(field.type) or isinstance(field.type, pa.BaseExtensionType):
                raise BatchError(f"column '{field.name}' is {field.type}, which CSV cannot hold")
        csv.write_csv(table, file, **_options(self._args_fn, self._args))


class JSONDatasink(BlockBasedFileDatasink):
    """Files of JSON, a row per line.

    Args:
        path: of the folder.
        pandas_json_args_fn: gives arguments, in the task.
        pandas_json_args: "lines", "orient" and others of pandas.DataFrame.to_json; without any,
            rows are written as they are and pandas is not needed.
        **file_datasink_kwargs: as of BlockBasedFileDatasink.
    """

    def __init__(
        self,
        path: str,
        *,
        pandas_json_args_fn: Callable[[], dict[str, Any]] | None = None,
        pandas_json_args: dict[str, Any] | None = None,
        **file_datasink_kwargs: Any,
    ):
        super().__init__(path, file_format="json", **file_datasink_kwargs)
        self._args_fn, self._args = pandas_json_args_fn, pandas_json_args

    def write_block_to_file(self, block: BlockAccessor, file: Any) -> None:
        """Writes one block.

        Args:
            block: of rows.
            file: open for writing.
        """
        args = _options(self._args_fn, self._args)
        if args:
            text = io.StringIO()
            block.to_pandas().to_json(text, **{"orient": "records", "lines": True, **args})
            file.write(text.getvalue().encode())
            return
        for row in table_to_rows(block.to_arrow()):
            file.write(json.dumps(row, default=_plain).encode() + b"\n")


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class NumpyDatasink(BlockBasedFileDatasink):
    """Files of numpy.save with one column.

    Args:
        path: of the folder.
        column: its name.
        **file_datasink_kwargs: as of BlockBasedFileDatasink.
    """

    def __init__(self, path: str, column: str, **file_datasink_kwargs: Any):
        super().__init__(path, file_format="npy", **file_datasink_kwargs)
        self._column = column

    def write_block_to_file(self, block: BlockAccessor, file: Any) -> None:
        """Writes one block.

        Args:
            block: of rows.
            file: open for writing.
        """
        check_columns([self._column], block.column_names(), "write_numpy")
        data = io.BytesIO()
        np.save(data, column_to_numpy(combine(block.to_arrow()).column(self._column)))
        file.write(data.getbuffer())


class ImageDatasink(RowBasedFileDatasink):
    """A file per image.

    Args:
        path: of the folder.
        column: of arrays of (height, width) or (height, width, bands).
        file_format: of Pillow, "png".
        **file_datasink_kwargs: as of FileDatasink.
    """

    def __init__(
        self, path: str, column: str, file_format: str = "png", **file_datasink_kwargs: Any
    ):
        super().__init__(path, file_format=file_format, **file_datasink_kwargs)
        self._column, self._format = column, file_format

    def write_row_to_file(self, row: dict[str, Any], file: Any) -> None:
        """Writes one image.

        Args:
            row: of the dataset.
            file: open for writing.
        """
        try:
            import PIL.Image
        except ImportError as error:
            raise MissingPackageError("write_images", "pillow") from error
        check_columns([self._column], list(row), "write_images")
        data = io.BytesIO()
        name = {"jpg": "jpeg", "tif": "tiff"}.get(self._format, self._format)
        PIL.Image.fromarray(np.asarray(row[self._column])).save(data, format=name)
        file.write(data.getbuffer())
