# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Transforms of whole columns, and of the first rows: none runs a function of the user's."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data import block as blocks
from sheaf.data.errors import BatchError
from sheaf.data.schema import check_columns
from sheaf.data.transforms.users import Transform


def filter_expression(expression: Any, *, name: str = "Filter") -> Transform:
    """The rows for which an expression is true; not those where it is NULL.

    Args:
        expression: of sheaf.data.expressions; its value is boolean.
        name: of the operator, for errors.

    Returns:
        The transform.
    """
    return functools.partial(_filter_expression, expression, name)


def _filter_expression(expression: Any, name: str, tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        mask = expression.evaluate(table)
        if not pa.types.is_boolean(mask.type):
            raise BatchError(f"{name}: {expression} is {mask.type}, and a filter wants a boolean")
        yield table.filter(mask)


def with_columns(expressions: Mapping[str, Any]) -> Transform:
    """Further columns, or others in the place of those of the same names. All see the columns that
    came in.

    Args:
        expressions: names of columns with expressions of sheaf.data.expressions.

    Returns:
        The transform.
    """
    return functools.partial(_with_columns, dict(expressions))


def _with_columns(expressions: dict[str, Any], tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        made: dict[str, Any] = {}
        for name, expression in expressions.items():
            made.update(expression.named_columns(table, name))
        for name, column in made.items():
            place = table.schema.get_field_index(name)
            table = (
                table.append_column(name, column)
                if place < 0
                else table.set_column(place, name, column)
            )
        yield table


def select(columns: Sequence[str]) -> Transform:
    """Some of the columns, in this order. A name that is not there raises ColumnNotFoundError.

    Args:
        columns: their names.

    Returns:
        The transform.
    """
    return functools.partial(_select, list(columns))


def _select(columns: list[str], tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        if not table.num_columns and not table.num_rows:  # Of a dataset without rows.
            yield table
            continue
        check_columns(columns, table.column_names, "select_columns")
        yield table.select(columns)


def drop(columns: Sequence[str]) -> Transform:
    """All but some of the columns. A name that is not there raises ColumnNotFoundError.

    Args:
        columns: the names of those that go.

    Returns:
        The transform.
    """
    return functools.partial(_drop, list(columns))


def _drop(columns: list[str], tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        check_columns(columns, table.column_names, "drop_columns")
        yield table.select([name for name in table.column_names if name not in columns])


def rename(names: Mapping[str, str] | Sequence[str]) -> Transform:
    """Other names of columns. A name that is not there raises ColumnNotFoundError, two columns of
    one name ValueError.

    Args:
        names: old names with new ones, or new names for all columns.

    Returns:
        The transform.
    """
    return functools.partial(_rename, dict(names) if isinstance(names, Mapping) else list(names))


def _rename(names: dict[str, str] | list[str], tables: Iterator[Any]) -> Iterator[Any]:
    for table in tables:
        if isinstance(names, dict):
            check_columns(names, table.column_names, "rename_columns")
            new = [names.get(name, name) for name in table.column_names]
        elif len(names) != table.num_columns:
            raise ValueError(
                f"rename_columns: {len(names)} names for {table.num_columns} columns: {names}"
            )
        else:
            new = names
        twice = next((name for name in new if new.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"rename_columns: two columns would be named '{twice}'")
        yield table.rename_columns(new)


def count_rows(tables: Iterator[Any]) -> Iterator[Any]:
    """How many rows the tables of a task have, as one row with the column "rows".

    Args:
        tables: what comes in.

    Yields:
        The table.
    """
    yield pa.table({"rows": [sum(table.num_rows for table in tables)]})


def limit_rows(count: int) -> Transform:
    """The first rows of a task. It takes no further table once it has them.

    Args:
        count: rows, 0 or more.

    Returns:
        The transform.
    """
    return functools.partial(_limit_rows, count)


def _limit_rows(count: int, tables: Iterator[Any]) -> Iterator[Any]:
    left = count
    for table in tables:
        yield blocks.slice_rows(table, 0, left)
        left -= min(left, table.num_rows)
        if left <= 0:
            return
