# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets to files and other places, by sinks of sheaf.data.datasource."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from sheaf.data import plan, transforms
from sheaf.data.compute import task_options

Dataset = Any  # Which has this among its bases.


_FILES = (
    "filesystem",
    "try_create_dir",
    "open_stream_args",
    "filename_provider",
    "mode",
    "min_rows_per_file",
    "max_rows_per_file",
)


class Writes:
    """The writing methods of Dataset."""

    def _write_files(
        self: Dataset, kind: str, path: str, own: dict[str, Any], given: dict[str, Any]
    ) -> None:
        """Writes files by a sink of sheaf.data.datasource: of sinks, or of a named module."""
        module, _, name = kind.rpartition(".")
        sinks = importlib.import_module(f"sheaf.data.datasource.{module or 'sinks'}")

        given = dict(given)
        running = {key: given.pop(key, None) for key in ("ray_remote_args", "concurrency")}
        rows = given.pop("num_rows_per_file", None)
        if rows is not None:
            given.setdefault("min_rows_per_file", rows)
        opening = given.pop("arrow_open_stream_args", None)
        if opening is not None:
            given["open_stream_args"] = opening
        files = {key: given.pop(key) for key in _FILES if key in given}
        args = own.pop("args", None)
        if args is not None:
            own[args] = given
        elif given:
            raise TypeError(f"unexpected keyword arguments {sorted(given)}")
        self.write_datasink(getattr(sinks, name)(path, **own, **files), **running)

    def write_parquet(
        self,
        path: str,
        *,
        partition_cols: list[str] | None = None,
        arrow_parquet_args_fn: Any = None,
        **options: Any,
    ) -> None:
        """Writes Parquet files, one per block.

        Args:
            path: the folder.
            partition_cols: columns whose values become folders.
            arrow_parquet_args_fn: gives arguments of pyarrow.parquet.write_table, in the task.
            **options: filesystem, mode (SaveMode), min_rows_per_file, max_rows_per_file,
                filename_provider, try_create_dir, concurrency, ray_remote_args, and arguments of
                pyarrow.parquet.write_table.
        """
        own = {
            "partition_cols": partition_cols,
            "arrow_parquet_args_fn": arrow_parquet_args_fn,
            "args": "arrow_parquet_args",
        }
        self._write_files("ParquetDatasink", path, own, options)

    def write_csv(self, path: str, *, arrow_csv_args_fn: Any = None, **options: Any) -> None:
        """Writes CSV files, one per block.

        Args:
            path: the folder.
            arrow_csv_args_fn: gives arguments of pyarrow.csv.write_csv, in the task.
            **options: as of write_parquet, with arguments of pyarrow.csv.write_csv.
        """
        own = {"arrow_csv_args_fn": arrow_csv_args_fn, "args": "arrow_csv_args"}
        self._write_files("CSVDatasink", path, own, options)

    def write_json(self, path: str, *, pandas_json_args_fn: Any = None, **options: Any) -> None:
        """Writes JSON files, a row per line, one per block.

        Args:
            path: the folder.
            pandas_json_args_fn: gives arguments of pandas.DataFrame.to_json, in the task.
            **options: as of write_parquet, with arguments of pandas.DataFrame.to_json.
        """
        own = {"pandas_json_args_fn": pandas_json_args_fn, "args": "pandas_json_args"}
        self._write_files("JSONDatasink", path, own, options)

    def write_numpy(self, path: str, *, column: str, **options: Any) -> None:
        """Writes files of numpy.save with one column, one per block.

        Args:
            path: the folder.
            column: its name.
            **options: as of write_parquet.
        """
        self._write_files("NumpyDatasink", path, {"column": column}, options)

    def write_images(
        self, path: str, column: str, file_format: str = "png", **options: Any
    ) -> None:
        """Writes images, a file per row.

        Args:
            path: the folder.
            column: of the images.
            file_format: of Pillow.
            **options: as of write_parquet.
        """
        self._write_files(
            "ImageDatasink", path, {"column": column, "file_format": file_format}, options
        )

    def write_tfrecords(self, path: str, *, tf_schema: Any = None, **options: Any) -> None:
        """Writes TFRecord files of tf.train.Example, one per block.

        Args:
            path: the folder.
            tf_schema: has no effect.
            **options: as of write_parquet.
        """
        self._write_files("tfrecords.TFRecordDatasink", path, {"tf_schema": tf_schema}, options)

    def write_webdataset(self, path: str, **options: Any) -> None:
        """Writes WebDataset archives, one per block; "__key__" names the files of a row.

        Args:
            path: the folder.
            **options: as of write_parquet.
        """
        self._write_files("webdataset.WebDatasetDatasink", path, {}, options)

    def write_sql(
        self: Dataset, sql: str, connection_factory: Callable[[], Any], **options: Any
    ) -> None:
        """Writes rows into a database, those of a task all or none.

        Args:
            sql: an INSERT with a place for each column.
            connection_factory: opens a connection (DB API 2); called in each task.
            **options: as of write_datasink.
        """
        from sheaf.data.datasource.sql import SQLDatasink

        self.write_datasink(SQLDatasink(sql, connection_factory), **options)

    def write_datasink(
        self: Dataset,
        datasink: Any,
        *,
        ray_remote_args: dict[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Writes through a sink: one call of its write() for each task.

        Args:
            datasink: a Datasink.
            ray_remote_args: options of remote functions, for its tasks.
            concurrency: tasks at a time; None: as many as fit.
        """
        options = task_options("write", None, None, concurrency, ray_remote_args or {})
        rows = datasink.min_rows_per_write or 0
        node = plan.Map(
            (self._plan,),
            f"Write{datasink.get_name()}",
            transforms.write(datasink),
            datasink,
            options,
            rows=rows,
            alone=True,  # Files have the number of their task in their names.
            default_options=ray_remote_args is None and concurrency is None,
        )
        datasink.on_write_start(plan.known_schema(self._plan))
        if getattr(datasink, "skips", False):
            return
        try:
            results = [row for table in self._with(node)._tables_now(None) for row in _rows(table)]
            datasink.on_write_complete(_result(results))
        except BaseException as error:
            datasink.on_write_failed(error)
            raise


def _rows(table: Any) -> list[dict[str, Any]]:
    from sheaf.data.block import table_to_rows

    return list(table_to_rows(table))


def _result(rows: list[dict[str, Any]]) -> Any:
    from sheaf.data.datasource.datasink import WriteResult

    return WriteResult(
        sum(row["num_rows"] for row in rows),
        sum(row["size_bytes"] for row in rows),
        [row["write_return"] for row in rows],
    )
