# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""read_parquet and the like: datasets of what lies in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sheaf.data.compute import task_options
from sheaf.data.dataset import Dataset
from sheaf.data.read_api import read_datasource

# Of every reader: how its tasks run.
_RUNNING = (
    "num_cpus",
    "num_gpus",
    "memory",
    "resources",
    "accelerator_type",
    "label_selector",
    "fallback_strategy",
    "max_calls",
    "runtime_env",
    "parallelism",
    "concurrency",
    "override_num_blocks",
    "ray_remote_args",
)
# Of every reader of files: which of them, and how they are opened.
_FILES = (
    "filesystem",
    "partition_filter",
    "partitioning",
    "include_paths",
    "ignore_missing_paths",
    "file_extensions",
    "shuffle",
)


def _read(
    name: str, make: Callable[..., Any], options: Mapping[str, Any], own: Mapping[str, Any]
) -> Dataset:
    """A dataset of files.

    Args:
        name: of the reader, for errors.
        make: the datasource's class.
        options: what the caller gave.
        own: further keywords of the datasource.
    """
    given = dict(options)
    files = {key: given.pop(key) for key in _FILES if key in given}
    opening = given.pop("arrow_open_stream_args", None) or given.pop("arrow_open_file_args", None)
    if opening is not None:
        files["open_stream_args"] = opening
    running = {key: given.pop(key) for key in _RUNNING if key in given}
    if given:
        task_options(name, None, None, None, given)  # It says which keyword is unknown.
        running["ray_remote_args"] = {**(running.get("ray_remote_args") or {}), **given}
    return read_datasource(make(**{**files, **own}), **running)


def read_parquet(
    paths: str | list[str],
    *,
    columns: list[str] | None = None,
    schema: Any = None,
    tensor_column_schema: Any = None,
    dataset_kwargs: dict[str, Any] | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> Dataset:
    """A dataset of Parquet files: a task reads some row groups.

    Args:
        paths: files or folders.
        columns: which; None: all.
        schema: of the result; None: that of all files together.
        tensor_column_schema: has no effect: tensors are columns of tensors in the file already.
        dataset_kwargs: has no effect.
        batch_size: rows that are read at once; None: as many as a block has room for.
        **options: filesystem, partition_filter, partitioning, include_paths, ignore_missing_paths,
            file_extensions, shuffle, override_num_blocks, concurrency, num_cpus, num_gpus, memory,
            ray_remote_args.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.parquet import ParquetDatasource

    own = {"paths": paths, "columns": columns, "schema": schema}
    if batch_size is not None:
        own["to_batch_kwargs"] = {"batch_size": batch_size}
    return _read("read_parquet", ParquetDatasource, options, own)


def read_csv(paths: str | list[str], **options: Any) -> Dataset:
    """A dataset of CSV files.

    Args:
        paths: files or folders.
        **options: as of read_parquet, and read_options, parse_options and convert_options of
            pyarrow.csv. Folders named key=value make columns of text.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.delimited import CSVDatasource
    from sheaf.data.datasource.partitioning import Partitioning

    args = {
        k: options.pop(k)
        for k in ("read_options", "parse_options", "convert_options")
        if k in options
    }
    options.setdefault("partitioning", Partitioning("hive"))
    return _read("read_csv", CSVDatasource, options, {"paths": paths, "arrow_csv_args": args})


def read_json(paths: str | list[str], *, lines: bool = False, **options: Any) -> Dataset:
    """A dataset of JSON files: an object per line, or one array or object per file.

    Args:
        paths: files or folders.
        lines: has no effect: it is seen in the file.
        **options: as of read_parquet, and read_options and parse_options of pyarrow.json. Folders
            named key=value make columns of text.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.delimited import JSONDatasource
    from sheaf.data.datasource.partitioning import Partitioning

    args = {k: options.pop(k) for k in ("read_options", "parse_options") if k in options}
    options.setdefault("partitioning", Partitioning("hive"))
    return _read("read_json", JSONDatasource, options, {"paths": paths, "arrow_json_args": args})


def read_text(
    paths: str | list[str],
    *,
    encoding: str = "utf-8",
    drop_empty_lines: bool = True,
    **options: Any,
) -> Dataset:
    """A dataset of lines of text, as "text".

    Args:
        paths: files or folders.
        encoding: of the files.
        drop_empty_lines: leaves out lines without characters.
        **options: as of read_parquet.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.delimited import TextDatasource

    own = {"paths": paths, "encoding": encoding, "drop_empty_lines": drop_empty_lines}
    return _read("read_text", TextDatasource, options, own)


def read_binary_files(paths: str | list[str], **options: Any) -> Dataset:
    """A dataset of whole files, as "bytes".

    Args:
        paths: files or folders.
        **options: as of read_parquet.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.whole_files import BinaryDatasource

    return _read("read_binary_files", BinaryDatasource, options, {"paths": paths})


def read_images(
    paths: str | list[str],
    *,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    **options: Any,
) -> Dataset:
    """A dataset of images, as "image".

    Args:
        paths: files or folders.
        size: (height, width) to scale to.
        mode: of Pillow to convert to, such as "RGB".
        **options: as of read_parquet.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.whole_files import ImageDatasource

    return _read(
        "read_images", ImageDatasource, options, {"paths": paths, "size": size, "mode": mode}
    )


def read_numpy(paths: str | list[str], *, allow_pickle: bool = False, **options: Any) -> Dataset:
    """A dataset of files of numpy.save, as "data".

    Args:
        paths: files or folders.
        allow_pickle: of numpy.load.
        **options: as of read_parquet.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.whole_files import NumpyDatasource

    args = {"allow_pickle": allow_pickle}
    return _read("read_numpy", NumpyDatasource, options, {"paths": paths, "numpy_load_args": args})


def read_tfrecords(paths: str | list[str], *, tf_schema: Any = None, **options: Any) -> Dataset:
    """A dataset of TFRecord files of tf.train.Example; TensorFlow is not needed.

    Args:
        paths: files or folders.
        tf_schema: has no effect.
        **options: as of read_parquet.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.tfrecords import TFRecordDatasource

    own = {"paths": paths, "tf_schema": tf_schema}
    return _read("read_tfrecords", TFRecordDatasource, options, own)


def read_webdataset(
    paths: str | list[str],
    *,
    decoder: Any = True,
    fileselect: Any = None,
    filerename: Any = None,
    suffixes: list[str] | None = None,
    expand_json: bool = False,
    **options: Any,
) -> Dataset:
    """A dataset of WebDataset archives: a row of the files that share a name up to the first dot.

    Args:
        paths: tar files or folders.
        decoder: whether files are decoded by their suffixes, or a function of a row that does it.
        fileselect: names of suffixes, or a function of a file's name: which files count.
        filerename: a function of a file's name, which gives the one to use.
        suffixes: of the files that count.
        expand_json: whether the fields of "json" become columns.
        **options: as of read_parquet.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.webdataset import WebDatasetDatasource

    own = {
        "paths": paths,
        "decoder": decoder,
        "fileselect": fileselect,
        "filerename": filerename,
        "suffixes": suffixes,
        "expand_json": expand_json,
    }
    return _read("read_webdataset", WebDatasetDatasource, options, own)


def read_avro(paths: str | list[str], **options: Any) -> Dataset:
    """A dataset of Avro files; it needs the package fastavro.

    Args:
        paths: files or folders.
        **options: as of read_parquet.

    Returns:
        The dataset, whose columns have the types of the files' schemas.
    """
    from sheaf.data.datasource.formats import AvroDatasource

    return _read("read_avro", AvroDatasource, options, {"paths": paths})


def read_orc(paths: str | list[str], **options: Any) -> Dataset:
    """A dataset of ORC files.

    Args:
        paths: files or folders.
        **options: as of read_parquet.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.formats import ORCDatasource

    return _read("read_orc", ORCDatasource, options, {"paths": paths})


def read_sql(
    sql: str,
    connection_factory: Callable[[], Any],
    *,
    shard_keys: list[str] | None = None,
    shard_hash_fn: str = "MD5",
    sql_params: Any = None,
    **options: Any,
) -> Dataset:
    """A dataset of what a database answers.

    Args:
        sql: the query.
        connection_factory: opens a connection (DB API 2); called in each read task.
        shard_keys: columns by whose hash several tasks share the rows; None: one task reads all.
        shard_hash_fn: a function of the database.
        sql_params: of the query.
        **options: as of read_datasource.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.sql import SQLDatasource

    source = SQLDatasource(sql, connection_factory, shard_hash_fn, shard_keys, sql_params)
    return read_datasource(source, **options)


def read_delta(
    path: str,
    version: Any = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    columns: list[str] | None = None,
    **options: Any,
) -> Dataset:
    """A dataset of a table of Delta Lake; it needs the package deltalake.

    Args:
        path: of its folder, or its address.
        version: a number or a moment; None: the newest.
        storage_options: of deltalake.DeltaTable.
        columns: which; None: all.
        **options: as of read_datasource.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.lakes import DeltaDatasource

    return read_datasource(DeltaDatasource(path, version, storage_options, columns), **options)


def read_iceberg(
    *,
    table_identifier: str,
    row_filter: Any = None,
    selected_fields: tuple[str, ...] = ("*",),
    snapshot_id: int | None = None,
    scan_kwargs: Mapping[str, Any] | None = None,
    catalog_kwargs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Dataset:
    """A dataset of a table of Iceberg; it needs the package pyiceberg.

    Args:
        table_identifier: "namespace.table".
        row_filter: an expression of pyiceberg, or its text.
        selected_fields: columns; ("*",): all.
        snapshot_id: which state; None: the newest.
        scan_kwargs: of pyiceberg's Table.scan.
        catalog_kwargs: of pyiceberg.catalog.load_catalog.
        **options: as of read_datasource.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.lakes import IcebergDatasource

    source = IcebergDatasource(
        table_identifier, row_filter, selected_fields, snapshot_id, scan_kwargs, catalog_kwargs
    )
    return read_datasource(source, **options)


def read_lance(
    uri: str,
    *,
    version: Any = None,
    columns: list[str] | None = None,
    filter: str | None = None,  # noqa: A002 - Ray's name.
    storage_options: Mapping[str, str] | None = None,
    scanner_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Dataset:
    """A dataset of a table of Lance; it needs the package pylance.

    Args:
        uri: of its folder, or its address.
        version: a number or a tag; None: the newest.
        columns: which; None: all.
        filter: a condition in SQL.
        storage_options: of lance.dataset.
        scanner_options: of lance.LanceFragment.scanner.
        **options: as of read_datasource.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.lakes import LanceDatasource

    source = LanceDatasource(uri, version, columns, filter, storage_options, scanner_options)
    return read_datasource(source, **options)


def from_torch(dataset: Any, **options: Any) -> Dataset:
    """A dataset of the elements of a torch Dataset, as "item".

    Args:
        dataset: a torch.utils.data.Dataset, which is pickled into the read tasks.
        **options: as of read_datasource.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.foreign import TorchDatasource

    return read_datasource(TorchDatasource(dataset), **options)


def from_huggingface(dataset: Any, **options: Any) -> Dataset:
    """A dataset of the rows of one of Hugging Face.

    Args:
        dataset: a datasets.Dataset or IterableDataset.
        **options: as of read_datasource.

    Returns:
        The dataset.
    """
    from sheaf.data.datasource.foreign import HuggingFaceDatasource

    return read_datasource(HuggingFaceDatasource(dataset), **options)
