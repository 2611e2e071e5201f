# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What an expression is, whatever it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sheaf.data.errors import BatchError


class Node:
    """A part of a tree that gives a column for a table."""

    _name: str | None = None

    @property
    def name(self) -> str | None:
        """The name of the column that it makes; None: it has none."""
        return self._name

    def evaluate(self, table: Any) -> Any:
        """The column that it is for these rows.

        Args:
            table: a pa.Table.

        Returns:
            A pa.Array or pa.ChunkedArray with one element per row.

        Raises:
            ColumnNotFoundError: the table lacks a column.
            BatchError: a kernel does not take the types of its columns.
        """
        value = self.value(table)
        if isinstance(value, pa.Scalar):
            return pa.repeat(value, table.num_rows)
        if len(value) != table.num_rows:
            raise BatchError(f"{self} gives {len(value)} values for {table.num_rows} rows")
        return value

    def named_columns(self, table: Any, name: str) -> dict[str, Any]:
        """The columns that it is where it is asked for as one of this name.

        Args:
            table: a pa.Table.
            name: of the column.

        Returns:
            Names with columns.
        """
        return {name: self.evaluate(table)}

    def value(self, table: Any) -> Any:
        """As evaluate, but a constant stays a pa.Scalar.

        Args:
            table: a pa.Table.

        Returns:
            A column or a scalar.
        """
        raise NotImplementedError

    def inputs(self) -> Sequence[Node]:
        """Returns the expressions that it is made of."""
        return ()

    def columns(self) -> set[str]:
        """Returns the names of all columns that it reads."""
        return set().union(*(one.columns() for one in self.inputs()))

    def is_of_task(self) -> bool:
        """Returns whether values depend on the number of the task that computes them."""
        return any(one.is_of_task() for one in self.inputs())

    def kernels(self) -> set[str]:
        """Returns the names of the kernels of pyarrow.compute that it is made of."""
        return set().union(*(one.kernels() for one in self.inputs()))

    def to_parquet_filter(self) -> Any:
        """Returns the pyarrow.compute.Expression that selects the same rows; None: there is
        none."""
        return None

    def to_pyarrow(self) -> Any:
        """Returns to_parquet_filter's result, or raises TypeError when there is none."""
        found = self.to_parquet_filter()
        if found is None:
            raise TypeError(f"{self} has no form that readers of Parquet know")
        return found

    def get_type(self, input_schema: Any) -> Any:
        """The type of its column.

        Args:
            input_schema: of the rows, a pa.Schema.

        Returns:
            The Arrow type; None when only the rows tell.
        """
        try:
            return self.evaluate(input_schema.empty_table()).type
        except BatchError:
            return None

    def structurally_equals(self, other: Any) -> bool:
        """Whether both are the same tree.

        Args:
            other: an expression.

        Returns:
            Whether they are.
        """
        return isinstance(other, Node) and repr(self) == repr(other)
