# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Expressions that stand for several columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.errors import BatchError
from sheaf.data.expressions.expression import Expr

__all__ = ["StarExpr", "UnnestExpr", "star", "unnest"]


class StarExpr(Expr):
    """All columns; select and with_columns take it apart."""

    def __repr__(self) -> str:
        return "star()"


class UnnestExpr(Expr):
    """The fields of a struct, as columns; with_columns takes them.

    Args:
        expr: gives the struct; it is computed once for a block.
    """

    def __init__(self, expr: Expr):
        self.expr = expr

    def named_columns(self, table: Any, name: str) -> dict[str, Any]:
        """The columns of its fields; `name` is not used.

        Args:
            table: a pa.Table.
            name: that of one column.

        Returns:
            Names with columns.

        Raises:
            BatchError: it is no struct.
        """
        structs = self.expr.evaluate(table)
        if not pa.types.is_struct(structs.type):
            raise BatchError(f"{self}: {self.expr} is {structs.type}: want a struct")
        names = [field.name for field in structs.type]
        return {one: pc.struct_field(structs, [place]) for place, one in enumerate(names)}

    def value(self, table: Any) -> Any:
        raise TypeError(f"{self} is several columns: want with_columns({self})")

    def alias(self, name: str) -> Expr:
        """Raises TypeError: several columns cannot have one name.

        Args:
            name: any.
        """
        raise TypeError(f"{self}.alias({name!r}): several columns cannot have one name")

    def inputs(self) -> Sequence[Expr]:
        return (self.expr,)

    def __repr__(self) -> str:
        return f"unnest({self.expr!r})"


def unnest(expr: Expr) -> Expr:
    """The fields of a struct as columns, which have their names: with_columns(unnest(col("s"))).

    Args:
        expr: gives the struct. It is computed once for a block.

    Returns:
        The expression.

    Raises:
        TypeError: it is no expression, or several columns already.
    """
    if not isinstance(expr, Expr) or isinstance(expr, UnnestExpr):
        raise TypeError(f"unnest({expr!r}): want an expression that is one column")
    return UnnestExpr(expr)


def star() -> Expr:
    """All columns, where several are named. Returns the expression."""
    return StarExpr()
