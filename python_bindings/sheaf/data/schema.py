# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Schemas: what users see, how those of several blocks become one, and names of columns that are
not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data import arrow_types
from sheaf.data.errors import ColumnNotFoundError, SchemaMismatchError

__all__ = ["Schema", "check_columns", "conform", "unify_schemas"]


class Schema:
    """The columns of a dataset: their names and Arrow types.

    Args:
        base_schema: a pa.Schema, also as the attribute of this name.
        data_context: has no effect.
    """

    def __init__(self, base_schema: Any, *, data_context: Any = None):
        self.base_schema = base_schema

    @property
    def names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self.base_schema.names)

    @property
    def types(self) -> list[Any]:
        """The Arrow types of the columns, in order."""
        return list(self.base_schema.types)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.base_schema.equals(other.base_schema)

    def __hash__(self) -> int:
        return hash((tuple(self.names), tuple(map(str, self.types))))

    def __repr__(self) -> str:
        width = max([6, *map(len, self.names)])
        lines = [f"{'Column':<{width}}  Type", f"{'------':<{width}}  ----"]
        lines += [f"{name:<{width}}  {kind}" for name, kind in zip(self.names, self.types)]
        return "\n".join(lines)


def check_columns(columns: Iterable[str], there: Sequence[str], where: str = "") -> None:
    """Raises ColumnNotFoundError for the first of `columns` that is not `there`.

    Args:
        columns: the names that are wanted.
        there: the names that exist.
        where: who wants them, for the error.
    """
    known = set(there)
    for name in columns:
        if name not in known:
            raise ColumnNotFoundError(name, there, where)


FILE_KEY = b"sheaf.file"  # In the metadata of a schema: the file whose rows have it.


def unify_schemas(schemas: Iterable[Any], files: Sequence[str] | None = None) -> Any:
    """One schema that all of these fit into: integers widen and become floats beside floats, a
    column that is missing or of type null somewhere is NULL there, structs have the fields of all.

    Args:
        schemas: of blocks or files, as pa.Schema.
        files: where each was found, for errors; when not given what their metadata say
            (FILE_KEY), else "block 3".

    Returns:
        The pa.Schema; its columns in the order in which they first came.

    Raises:
        SchemaMismatchError: a column has two types that no third one holds.
    """
    schemas = list(schemas)
    if not schemas:
        return pa.schema([])
    first = schemas[0]
    if all(schema is first or schema.equals(first) for schema in schemas[1:]):
        return first
    types: dict[str, Any] = {}
    where: dict[str, str] = {}
    for number, schema in enumerate(schemas):
        origin = (schema.metadata or {}).get(FILE_KEY, f"block {number}".encode())
        place = files[number] if files and number < len(files) else origin.decode()
        for field in schema:
            if field.name not in types:
                types[field.name], where[field.name] = field.type, place
                continue
            known = types[field.name]
            both = unified(known, field.type)
            if both is None:
                raise SchemaMismatchError(
                    field.name, str(known), where[field.name], str(field.type), place
                )
            if both != known:
                types[field.name], where[field.name] = both, place
    metadata = next((schema.metadata for schema in schemas if schema.metadata), None)
    return pa.schema([pa.field(name, kind) for name, kind in types.items()], metadata)


def unified(a: Any, b: Any) -> Any:
    """The type that holds the values of both.

    Args:
        a, b: types of Arrow.

    Returns:
        The type; None: there is none.
    """
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    extension = isinstance(a, pa.BaseExtensionType) or isinstance(b, pa.BaseExtensionType)
    for rule in (_unified_extensions,) if extension else (_unified_plain, _unified_nested):
        both = rule(a, b)
        if both is not None:
            return both
    return None


def _unified_extensions(a: Any, b: Any) -> Any:
    objects = [kind for kind in (a, b) if isinstance(kind, arrow_types.PickledObjectType)]
    if objects:
        return objects[0]
    if not (arrow_types.is_tensor(a) and arrow_types.is_tensor(b)):
        return None
    element = unified(_element(a), _element(b))
    dimensions = {_dimensions(a), _dimensions(b)}
    if element is None or len(dimensions) > 1:
        return None
    shape = arrow_types.tensor_shape(a)
    if shape is not None and shape == arrow_types.tensor_shape(b):
        return pa.fixed_shape_tensor(element, shape)
    return arrow_types.ArrowVariableShapedTensorType(element, dimensions.pop())


def _element(kind: Any) -> Any:
    if isinstance(kind, arrow_types.ArrowVariableShapedTensorType):
        return kind.scalar_type
    return kind.storage_type.value_type


def _dimensions(kind: Any) -> int:
    shape = arrow_types.tensor_shape(kind)
    return kind.ndim if shape is None else len(shape)


def _unified_plain(a: Any, b: Any) -> Any:
    is_ = pa.types
    for first, second in ((a, b), (b, a)):
        if is_.is_dictionary(first):
            return unified(
                first.value_type, second.value_type if is_.is_dictionary(second) else second
            )
    if _is_number(a) and _is_number(b):
        return _unified_numbers(a, b)
    strings, binaries = (
        (is_.is_string, is_.is_large_string, is_.is_string_view),
        (is_.is_binary, is_.is_large_binary, is_.is_binary_view),
    )
    for tests, result in ((strings, pa.large_string()), (binaries, pa.large_binary())):
        if any(test(a) for test in tests) and any(test(b) for test in tests):
            return result
    if is_.is_timestamp(a) and is_.is_timestamp(b) and a.tz == b.tz:
        return max(a, b, key=lambda kind: ["s", "ms", "us", "ns"].index(kind.unit))
    if is_.is_duration(a) and is_.is_duration(b):
        return max(a, b, key=lambda kind: ["s", "ms", "us", "ns"].index(kind.unit))
    if is_.is_date(a) and is_.is_date(b):
        return pa.date64()
    return None


def _is_number(kind: Any) -> bool:
    is_ = pa.types
    return is_.is_integer(kind) or is_.is_floating(kind) or is_.is_decimal(kind)


def _unified_numbers(a: Any, b: Any) -> Any:
    is_ = pa.types
    if is_.is_decimal(a) and is_.is_decimal(b):
        scale = max(a.scale, b.scale)
        precision = scale + max(a.precision - a.scale, b.precision - b.scale)
        return (
            pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        )
    if is_.is_floating(a) and is_.is_floating(b):
        return max(a, b, key=lambda kind: kind.bit_width)
    if is_.is_integer(a) and is_.is_integer(b):
        if is_.is_signed_integer(a) == is_.is_signed_integer(b):
            return max(a, b, key=lambda kind: kind.bit_width)
        unsigned = a if is_.is_unsigned_integer(a) else b
        return pa.float64() if unsigned.bit_width == 64 else pa.int64()
    return pa.float64()


def _unified_nested(a: Any, b: Any) -> Any:
    is_ = pa.types
    if is_.is_struct(a) and is_.is_struct(b):
        fields = {field.name: field.type for field in a}
        for field in b:
            both = unified(fields.get(field.name, pa.null()), field.type)
            if both is None:
                return None
            fields[field.name] = both
        return pa.struct(list(fields.items()))
    if is_.is_map(a) and is_.is_map(b):
        key, item = unified(a.key_type, b.key_type), unified(a.item_type, b.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    lists = (is_.is_list, is_.is_large_list, is_.is_fixed_size_list)
    if any(test(a) for test in lists) and any(test(b) for test in lists):
        element = unified(a.value_type, b.value_type)
        if element is None:
            return None
        large = is_.is_large_list(a) or is_.is_large_list(b)
        return pa.large_list(element) if large else pa.list_(element)
    return None


def conform(table: Any, schema: Any) -> Any:
    """The table with exactly the columns and types of `schema`, which unify_schemas gave for it
    among others; columns that it lacks are NULL.

    Args:
        table: a pa.Table.
        schema: a pa.Schema.

    Returns:
        The pa.Table; the same when nothing is to be changed.
    """
    if table.schema.equals(schema):
        return table
    if not len(schema):
        return table.select([])
    there = set(table.column_names)
    columns = [
        cast(table.column(field.name), field.type)
        if field.name in there
        else pa.chunked_array([_nulls(table.num_rows, field.type)])
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _nulls(rows: int, kind: Any) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.nulls(rows, kind.storage_type))
    return pa.nulls(rows, kind)


def cast(column: Any, kind: Any) -> Any:
    """A pa.ChunkedArray as one of another type, which `unified` gave for it and another."""
    if column.type == kind:
        return column
    if pa.types.is_null(column.type):
        return pa.chunked_array([_nulls(len(column), kind)], kind)
    if isinstance(kind, arrow_types.PickledObjectType):
        from sheaf.data.columns import values_of

        return pa.chunked_array([arrow_types.objects_array(values_of(column))], kind)
    if isinstance(kind, arrow_types.ArrowVariableShapedTensorType):
        return pa.chunked_array([_as_variable(chunk, kind) for chunk in column.chunks], kind)
    if isinstance(kind, pa.FixedShapeTensorType):
        storage = pa.chunked_array(
            [chunk.storage for chunk in column.chunks], column.type.storage_type
        ).cast(kind.storage_type)
        return pa.chunked_array(
            [pa.ExtensionArray.from_storage(kind, chunk) for chunk in storage.chunks], kind
        )
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        return pa.chunked_array([_struct(chunk, kind) for chunk in column.chunks], kind)
    if pa.types.is_floating(kind) and pa.types.is_decimal(column.type):
        column = column.cast(pa.string())  # The nearest float: Arrow's own cast makes others.
    return column.cast(kind, safe=not pa.types.is_floating(kind))  # 2**60 beside a float is one.


def _as_variable(chunk: Any, kind: Any) -> Any:
    rows = list(arrow_types.tensors_to_numpy(chunk))
    data = pa.array(
        [None if row is None else row.reshape(-1) for row in rows], pa.large_list(kind.scalar_type)
    )
    shapes = pa.array(
        [None if row is None else list(row.shape) for row in rows], pa.list_(pa.int64())
    )
    storage = pa.StructArray.from_arrays(
        [data, shapes],
        fields=list(kind.storage_type),
        mask=pa.array([row is None for row in rows], pa.bool_()),
    )
    return pa.ExtensionArray.from_storage(kind, storage)


def _struct(chunk: Any, kind: Any) -> Any:
    there = {field.name for field in chunk.type}
    columns = []
    for field in kind:
        column = chunk.field(field.name) if field.name in there else pa.nulls(len(chunk))
        made = cast(pa.chunked_array([column]), field.type)
        columns.append(made.combine_chunks() if made.num_chunks != 1 else made.chunk(0))
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=chunk.is_null())
