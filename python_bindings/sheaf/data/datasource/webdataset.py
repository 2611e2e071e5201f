# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""WebDataset: tar archives in which the files of one row follow each other and have one name before
their first dot; each suffix is a column."""

from __future__ import annotations

import fnmatch
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sheaf.data.block import BlockAccessor, rows_to_table, table_to_rows
from sheaf.data.datasource.file_based import FileBasedDatasource
from sheaf.data.datasource.file_datasink import BlockBasedFileDatasink
from sheaf.data.errors import BatchError, FileFormatError, MissingPackageError

__all__ = ["WebDatasetDatasink", "WebDatasetDatasource"]

_ROWS_AT_ONCE = 256
_IMAGES = ("jpg", "jpeg", "png", "ppm", "pgm", "pbm")
_TEXTS = ("txt", "text", "transcript")
_NUMBERS = ("cls", "cls2", "index", "inx", "id")


def _decoded(suffix: str, data: bytes) -> Any:
    kind = suffix.rpartition(".")[2].lower()
    if kind in _TEXTS:
        return data.decode()
    if kind in _NUMBERS:
        return int(data)
    if kind in ("json", "jsn"):
        return json.loads(data)
    if kind == "npy":
        return np.load(io.BytesIO(data), allow_pickle=False)
    if kind in _IMAGES:
        try:
            import PIL.Image
        except ImportError as error:
            raise MissingPackageError("read_webdataset of images", "pillow") from error
        return np.asarray(PIL.Image.open(io.BytesIO(data)))
    return data


class WebDatasetDatasource(FileBasedDatasource):
    """Archives of WebDataset; "__key__" is the name before the first dot.

    Args:
        paths: of files or folders.
        decoder: True: text, numbers, JSON, NumPy and images by their suffixes, other files as
            bytes, also pickles; None or False: all as bytes; or a function that takes a row of
            bytes.
        fileselect: patterns of suffixes that are read, or a function of a file's name.
        filerename: a function that gives a file's name another one.
        suffixes: patterns of suffixes that are read.
        verbose_open: has no effect.
        expand_json: makes columns of the keys of "json".
        **file_based_datasource_kwargs: as of FileBasedDatasource.
    """

    _FILE_EXTENSIONS = ["tar", "tar.gz", "tgz"]

    def __init__(
        self,
        paths: Any,
        decoder: bool | Callable[[dict[str, Any]], dict[str, Any]] | None = True,
        fileselect: list[str] | Callable[[str], bool] | None = None,
        filerename: Callable[[str], str] | None = None,
        suffixes: list[str] | None = None,
        verbose_open: bool = False,
        expand_json: bool = False,
        **file_based_datasource_kwargs: Any,
    ):
        super().__init__(paths, **file_based_datasource_kwargs)
        self._decoder, self._select, self._rename = decoder, fileselect, filerename
        self._suffixes, self._expand = suffixes, expand_json

    def _wanted(self, name: str, suffix: str) -> bool:
        if callable(self._select):
            return bool(self._select(name))
        return all(
            patterns is None or any(fnmatch.fnmatch(suffix, one.lstrip(".")) for one in patterns)
            for patterns in (self._select, self._suffixes)
        )

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        rows: list[dict[str, Any]] = []
        try:
            for row in self._rows(f):
                rows.append(row)
                if len(rows) == _ROWS_AT_ONCE:
                    yield rows_to_table(rows)
                    rows = []
        except (tarfile.TarError, EOFError) as error:
            raise FileFormatError(path, f"not a whole tar archive: {error}") from error
        if rows:
            yield rows_to_table(rows)

    def _rows(self, file: Any) -> Iterator[dict[str, Any]]:
        row: dict[str, Any] = {}
        with tarfile.open(fileobj=file, mode="r|*") as archive:
            for member in archive:
                if not member.isfile():
                    continue
                name = self._rename(member.name) if self._rename else member.name
                folder, slash, base = name.rpartition("/")
                stem, dot, suffix = base.partition(".")
                if not dot or not self._wanted(name, suffix):
                    continue
                key = folder + slash + stem
                if row and row["__key__"] != key:
                    yield self._made(row)
                    row = {}
                row["__key__"] = key
                content = archive.extractfile(member)
                row[suffix] = content.read() if content else b""
        if row:
            yield self._made(row)

    def _made(self, row: dict[str, Any]) -> dict[str, Any]:
        if callable(self._decoder):
            row = self._decoder(row)
        elif self._decoder:
            row = {
                name: value if name == "__key__" else self._one(row["__key__"], name, value)
                for name, value in row.items()
            }
        if self._expand and isinstance(row.get("json"), dict):
            row.update(row.pop("json"))
        return row

    def _one(self, key: str, suffix: str, data: bytes) -> Any:
        try:
            return _decoded(suffix, data)
        except (ValueError, OSError) as error:
            raise ValueError(f"{key}.{suffix}: {error}") from error


class WebDatasetDatasink(BlockBasedFileDatasink):
    """Archives of WebDataset; rows are named by "__key__", or numbered.

    Args:
        path: of the folder.
        **file_datasink_kwargs: as of BlockBasedFileDatasink.
    """

    def __init__(self, path: str, **file_datasink_kwargs: Any):
        super().__init__(path, file_format="tar", **file_datasink_kwargs)

    def write_block_to_file(self, block: BlockAccessor, file: Any) -> None:
        """Writes one block.

        Args:
            block: of rows.
            file: open for writing.
        """
        with tarfile.open(fileobj=file, mode="w|") as archive:
            for number, row in enumerate(table_to_rows(block.to_arrow())):
                key = row.pop("__key__", f"{number:06}")
                for name, value in row.items():
                    data = _encoded(name, value)
                    info = tarfile.TarInfo(f"{key}.{name}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))


def _encoded(name: str, value: Any) -> bytes:
    kind = name.rpartition(".")[2].lower()
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if kind in _NUMBERS and isinstance(value, int):
        return str(value).encode()
    if kind in ("json", "jsn"):
        return json.dumps(value).encode()
    data = io.BytesIO()
    if kind == "npy":
        np.save(data, value)
        return data.getvalue()
    if kind in _IMAGES:
        try:
            import PIL.Image
        except ImportError as error:
            raise MissingPackageError("write_webdataset of images", "pillow") from error
        form = {"jpg": "jpeg"}.get(kind, kind)
        PIL.Image.fromarray(np.asarray(value)).save(data, format=form)
        return data.getvalue()
    raise BatchError(
        f"column '{name}' holds {type(value).__name__}: want bytes or text, or a name that ends in "
        ".json, .npy, .cls or an image's suffix"
    )
