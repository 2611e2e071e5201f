# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Files of Avro and ORC, which say what their columns are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sheaf.data.block import rows_to_table
from sheaf.data.datasource.file_based import FileBasedDatasource
from sheaf.data.errors import FileFormatError, MissingPackageError

__all__ = ["AvroDatasource", "ORCDatasource"]

_ROWS_AT_ONCE = 4096
_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}


class ORCDatasource(FileBasedDatasource):
    """Files of ORC, a stripe at a time. Arguments as of FileBasedDatasource."""

    _COMPRESSED = False
    _FILE_EXTENSIONS = ["orc"]

    def _open_input_source(self, filesystem: Any, path: str, **open_args: Any) -> Any:
        return filesystem.open_input_file(path)  # Its end says where things are.

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        from pyarrow import orc

        file = orc.ORCFile(f)
        if not file.nstripes:
            yield file.schema.empty_table()
        for number in range(file.nstripes):
            yield pa.Table.from_batches([file.read_stripe(number)])


class AvroDatasource(FileBasedDatasource):
    """Files of Avro, by the package fastavro. Arguments as of FileBasedDatasource.

    Columns have the types that the schema in the file says; those of a union of several types get
    theirs from the values.
    """

    _COMPRESSED = False  # Its blocks are, by what the file says.
    _FILE_EXTENSIONS = ["avro"]

    def __init__(self, paths: Any, **file_based_datasource_kwargs: Any):
        try:
            import fastavro  # noqa: F401
        except ImportError as error:
            raise MissingPackageError("read_avro", "fastavro") from error
        super().__init__(paths, **file_based_datasource_kwargs)

    def _read_stream(self, f: Any, path: str) -> Iterator[Any]:
        import fastavro

        try:
            rows = fastavro.reader(f)
            schema = rows.writer_schema
            if not isinstance(schema, dict) or schema.get("type") != "record":
                raise ValueError("its rows are no records")
            types = _Types()
            kinds = {field["name"]: types.of(field["type"]) for field in schema["fields"]}
            yield _table([], kinds)
            while part := list(itertools.islice(rows, _ROWS_AT_ONCE)):
                yield _table(part, kinds)
        except (EOFError, IndexError, KeyError, TypeError, ValueError) as error:
            raise FileFormatError(path, f"not a whole Avro file: {error}") from error


def _table(rows: list[Any], kinds: dict[str, Any]) -> Any:
    columns = {}
    for name, kind in kinds.items():
        values = [row[name] for row in rows]
        if kind is not None:
            columns[name] = pa.array([_arrow(value, kind) for value in values], kind)
        elif rows:
            columns[name] = rows_to_table([{name: value} for value in values]).column(name)
        else:
            columns[name] = pa.nulls(0)
    return pa.table(columns)


def _arrow(value: Any, kind: Any) -> Any:
    """A value as pa.array takes it: maps are lists of pairs there."""
    if value is None or not pa.types.is_nested(kind):
        return str(value) if pa.types.is_string(kind) and value is not None else value
    if pa.types.is_map(kind):
        return [(key, _arrow(one, kind.item_type)) for key, one in value.items()]
    if pa.types.is_struct(kind):
        return {field.name: _arrow(value[field.name], field.type) for field in kind}
    return [_arrow(one, kind.value_type) for one in value]


class _Types:
    """Types of Arrow for those of Avro; None where there is none, as for unions of several."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def of(self, kind: Any) -> Any:
        """The type.

        Args:
            kind: of a schema of Avro that fastavro has parsed.

        Returns:
            It; None: only the values tell.
        """
        if isinstance(kind, list):
            some = [one for one in kind if one != "null"]
            return self.of(some[0]) if len(some) == 1 else None if some else pa.null()
        if isinstance(kind, str):
            return self._named.get(kind, _PLAIN.get(kind))
        made = self._complex(kind)
        if "name" in kind:
            self._named[kind["name"]] = made
        return made

    def _complex(self, kind: dict[str, Any]) -> Any:
        name, logical = kind["type"], kind.get("logicalType")
        if logical == "decimal":
            return pa.decimal128(kind["precision"], kind.get("scale", 0))
        if logical == "uuid":
            return pa.string()
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if name == "fixed":
            return pa.binary(kind["size"])
        if name == "array":
            items = self.of(kind["items"])
            return None if items is None else pa.list_(items)
        if name == "map":
            values = self.of(kind["values"])
            return None if values is None else pa.map_(pa.string(), values)
        if name in ("record", "error"):
            self._named[kind["name"]] = None  # One that contains itself has no type of Arrow.
            fields = [(field["name"], self.of(field["type"])) for field in kind["fields"]]
            return None if any(one is None for _, one in fields) else pa.struct(fields)
        return self.of(name)
