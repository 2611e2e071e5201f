# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Text files: CSV, lines of JSON or one JSON document, and plain lines."""

from __future__ import annotations

import codecs
import copy
import io
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.block import rows_to_table
from sheaf.data.datasource.file_based import FileBasedDatasource
from sheaf.data.datasource.moments import with_moments
from sheaf.data.datasource.pieces import Piece
from sheaf.data.errors import FileFormatError

__all__ = ["CSVDatasource", "JSONDatasource", "TextDatasource"]

_LINES_AT_ONCE = 65536
_FIRST_BYTES = 1 << 20  # Of a large file of JSON, which tell its types.
_LINES_IN_BYTES = ("utf-8", "ascii", "iso8859-1")  # Encodings whose line ends are the byte's.
_CSV_OPTIONS = {
    "read_options": "ReadOptions",
    "parse_options": "ParseOptions",
    "convert_options": "ConvertOptions",
}


class CSVDatasource(FileBasedDatasource):
    """Files of comma-separated values; the first line has the names unless read options say else.

    Args:
        paths: of files or folders.
        arrow_csv_args: "read_options", "parse_options" and "convert_options" of pyarrow.csv.
        **file_based_datasource_kwargs: as of FileBasedDatasource.
    """

    def __init__(
        self,
        paths: Any,
        arrow_csv_args: dict[str, Any] | None = None,
        **file_based_datasource_kwargs: Any,
    ):
        super().__init__(paths, **file_based_datasource_kwargs)
        self._args = dict(arrow_csv_args or {})
        for name, wanted in _CSV_OPTIONS.items():
            if name in self._args and type(self._args[name]).__name__ != wanted:
                raise TypeError(f"{name}={self._args[name]!r}: want a pyarrow.csv.{wanted}")

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        yield from self._parsed(f, path, self._args)

    def _parsed(self, f: Any, path: str, given: dict[str, Any]) -> Iterator[Any]:
        from pyarrow import csv

        args = dict(given)
        args.setdefault("read_options", csv.ReadOptions(use_threads=False))
        try:
            with csv.open_csv(f, **args) as reader:
                self._check_text(reader.schema, path)
                yield reader.schema.empty_table()
                for batch in reader:
                    yield pa.Table.from_batches([batch])
        except pa.ArrowInvalid as error:
            raise _csv_error(path, str(error)) from error

    def _beginning(self, file: Any) -> Any:
        """The schema, by which all pieces are read, as a whole file is; None where lines are not
        rows, or the first ones are not like the others."""
        from pyarrow import csv

        reading, parsing = self._args.get("read_options"), self._args.get("parse_options")
        converting = self._args.get("convert_options")
        if parsing is not None and parsing.newlines_in_values:
            return None
        if reading is not None and (
            reading.skip_rows or reading.skip_rows_after_names or reading.encoding != "utf8"
        ):
            return None
        if converting is not None and converting.include_columns:
            return None  # Of the other columns no name is known.
        with csv.open_csv(file, **self._args) as reader:
            first = reader.read_next_batch()
        return None if any(map(_has_line_end, first.columns)) else first.schema

    def _read_lines(self, lines: Any, unit: Piece) -> Iterator[Any]:
        from pyarrow import csv

        converting = copy.copy(self._args.get("convert_options") or csv.ConvertOptions())
        types = {field.name: field.type for field in unit.known}
        converting.column_types = {**types, **(converting.column_types or {})}
        args = {**self._args, "convert_options": converting}
        if unit.start:
            own = self._args.get("read_options") or csv.ReadOptions(use_threads=False)
            reading = copy.copy(own)
            reading.column_names = unit.known.names
            reading.autogenerate_column_names = False
            args["read_options"] = reading
        table: Any = None
        for table in self._parsed(lines, unit.path, args):
            yield table
        # A piece that ends in quotes has the line end in its last value; all others begin right.
        if not unit.is_last and any(
            _has_line_end(column[-1:]) for column in getattr(table, "columns", ())
        ):
            raise FileFormatError(
                unit.path,
                "a value in quotes has a line end: want "
                "pyarrow.csv.ParseOptions(newlines_in_values=True)",
            )

    def _check_text(self, schema: Any, path: str) -> None:
        """A column becomes binary when it holds what is no UTF-8, which nobody wants who did not
        say so."""
        wanted = getattr(self._args.get("convert_options"), "column_types", None) or {}
        for field in schema:
            if pa.types.is_binary(field.type) and field.name not in wanted:
                raise FileFormatError(
                    path,
                    f"not UTF-8 in column '{field.name}': set the encoding in "
                    "pyarrow.csv.ReadOptions, or the type binary in ConvertOptions",
                )


def _has_line_end(column: Any) -> bool:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        return False
    return bool(pc.any(pc.match_substring(column, "\n")).as_py())


def _csv_error(path: str, text: str) -> FileFormatError:
    if "Empty CSV file" in text:
        return FileFormatError(path, "the file is empty: want a line with the names of the columns")
    if "invalid UTF8" in text:
        return FileFormatError(
            path, f"not UTF-8 ({text}): set the encoding in pyarrow.csv.ReadOptions"
        )
    row = re.search(r"Row #(\d+): ", text)
    if row:  # Of what was read at once, perhaps not of the file: the line is said with the path.
        text = text.replace(row[0], "", 1)
    problem = f"{text}; pyarrow.csv.ParseOptions(invalid_row_handler=...) can leave such rows out"
    return FileFormatError(path, problem, int(row[1]) if row else None)


class JSONDatasource(FileBasedDatasource):
    """Files of JSON: an object per line, or one array or object per file.

    Args:
        paths: of files or folders.
        arrow_json_args: "read_options" and "parse_options" of pyarrow.json.
        **file_based_datasource_kwargs: as of FileBasedDatasource.
    """

    _FILE_EXTENSIONS = [
        "json",
        "jsonl",
        "ndjson",
        "json.gz",
        "jsonl.gz",
        "json.br",
        "json.zst",
        "jsonl.zst",
        "json.lz4",
        "jsonl.br",
        "jsonl.lz4",
    ]

    def __init__(
        self,
        paths: Any,
        *,
        arrow_json_args: dict[str, Any] | None = None,
        **file_based_datasource_kwargs: Any,
    ):
        super().__init__(paths, **file_based_datasource_kwargs)
        self._args = dict(arrow_json_args or {})

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        yield from self._parsed(f.read(), path, self._args)

    def _parsed(self, data: bytes, path: str, args: dict[str, Any]) -> Iterator[Any]:
        from pyarrow import json as arrow_json

        if not data.strip():
            return
        text = _decoded(data, path)
        if not data.lstrip().startswith(b"["):
            try:
                yield self._typed(arrow_json.read_json(io.BytesIO(data), **args))
                return
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                pass  # One document of several lines, values of several types, or no JSON.
        for part in _in_parts(_json_rows(text, path)):
            yield rows_to_table(part)

    def _typed(self, table: Any) -> Any:
        """The table with moments, unless the user says which types columns have."""
        own = self._args.get("parse_options")
        return table if own is not None and own.explicit_schema else with_moments(table)

    def _beginning(self, file: Any) -> Any:
        """The schema of the first lines, by which all pieces are read; None where lines are not
        rows, or have times, which not all pieces may take for times."""
        from pyarrow import json as arrow_json

        first = file.read_at(_FIRST_BYTES, 0)
        lines = first[: first.rfind(b"\n") + 1]
        if not lines.lstrip().startswith(b"{"):
            return None
        json.loads(lines.lstrip().partition(b"\n")[0])  # ValueError: one object on many lines.
        schema = self._typed(arrow_json.read_json(io.BytesIO(lines), **self._args)).schema
        return None if any(map(_has_time, schema)) else schema

    def _read_lines(self, lines: Any, unit: Piece) -> Iterator[Any]:
        from pyarrow import json as arrow_json

        args = dict(self._args)
        if "parse_options" not in args:
            args["parse_options"] = arrow_json.ParseOptions(
                explicit_schema=unit.known, unexpected_field_behavior="infer"
            )
        yield from self._parsed(lines.read(), unit.path, args)


def _has_time(field: Any) -> bool:
    if pa.types.is_timestamp(field.type):
        return True
    return any(_has_time(field.type.field(place)) for place in range(field.type.num_fields))


def _in_parts(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while part := list(itertools.islice(rows, _LINES_AT_ONCE)):
        yield part


def _decoded(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(path, f"not UTF-8: {error}") from error


def _json_rows(text: str, path: str) -> Iterator[Any]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("["):
            raise FileFormatError(path, f"not JSON: {error.msg}", error.lineno) from error
    else:
        yield from whole if isinstance(whole, list) else [whole]
        return
    for number, line in enumerate(io.StringIO(text, newline=None), 1):  # Not at U+2028 and others.
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise FileFormatError(path, f"not JSON: {error.msg}", number) from error


class TextDatasource(FileBasedDatasource):
    """Files of text: a row per line, in the column "text".

    Args:
        paths: of files or folders.
        drop_empty_lines: leaves out lines without characters.
        encoding: of the files.
        **file_based_datasource_kwargs: as of FileBasedDatasource.
    """

    def __init__(
        self,
        paths: Any,
        *,
        drop_empty_lines: bool = False,
        encoding: str = "utf-8",
        **file_based_datasource_kwargs: Any,
    ):
        super().__init__(paths, **file_based_datasource_kwargs)
        self._drop_empty_lines = drop_empty_lines
        self._encoding = encoding

    def _beginning(self, file: Any) -> Any:
        return True if codecs.lookup(self._encoding).name in _LINES_IN_BYTES else None

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        number = 0
        try:
            lines = iter(io.TextIOWrapper(io.BufferedReader(f), encoding=self._encoding))
            for part in _in_parts(lines):
                number += len(part)
                text = [line.rstrip("\r\n") for line in part]
                if self._drop_empty_lines:
                    text = [line for line in text if line]
                yield pa.table({"text": pa.array(text, pa.string())})
        except UnicodeDecodeError as error:
            raise FileFormatError(
                path, f"not {self._encoding} behind line {number}: {error}"
            ) from error
