# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What an expression is: a tree that pickles, tells which columns it reads, gives a column for a
table, and becomes a filter of Parquet readers where those have its kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.errors import BatchError, shown
from sheaf.data.expressions import arithmetic
from sheaf.data.expressions.node import Node
from sheaf.data.expressions.operation import BINARY, OF_KERNEL, SIGNS, UNARY, Operation
from sheaf.data.schema import check_columns

__all__ = ["Expr", "col", "lit"]

# Those that a Parquet reader has, with the same meaning.
_IN_READERS = {
    *(kernel for sign, kernel in BINARY.values() if sign[0] not in "+-*/%"),
    *UNARY.values(),
    "is_in",
}
# Of which Sheaf has its own.
_OWN: dict[str, Callable[..., Any]] = {
    "add": arithmetic.add,
    "divide": arithmetic.divide,
    "floor_divide": arithmetic.floor_divide,
    "remainder": arithmetic.remainder,
    "subtract": arithmetic.subtract,
    "multiply": arithmetic.multiply,
    "power": arithmetic.power,
    "negate": arithmetic.negate,
    "abs": arithmetic.absolute,
    "is_in": arithmetic.is_in,
    **{
        kernel: functools.partial(arithmetic.compare, kernel)
        for kernel in ("greater", "less", "greater_equal", "less_equal", "equal", "not_equal")
    },
}

NAMESPACES: dict[str, Callable[[Any], Any]] = {}  # "str" and so on: namespaces.py fills it.


class Expr(Node):
    """An expression. Operators (+ - * / // % == != < <= > >= & | ~) and methods make others.

    Thread-safe: expressions never change.
    """

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self} has no truth value: write & | ~ for and, or, not, with each side in brackets"
        )

    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return call("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return call("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return call("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return call("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return call("divide", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return call("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return call("floor_divide", other, self)

    def __mod__(self, other: Any) -> Expr:
        return call("remainder", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return call("remainder", other, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return call("equal", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return call("not_equal", self, other)

    def __lt__(self, other: Any) -> Expr:
        return call("less", self, other)

    def __le__(self, other: Any) -> Expr:
        return call("less_equal", self, other)

    def __gt__(self, other: Any) -> Expr:
        return call("greater", self, other)

    def __ge__(self, other: Any) -> Expr:
        return call("greater_equal", self, other)

    def __and__(self, other: Any) -> Expr:
        return call("and_kleene", self, other)

    def __rand__(self, other: Any) -> Expr:
        return call("and_kleene", other, self)

    def __or__(self, other: Any) -> Expr:
        return call("or_kleene", self, other)

    def __ror__(self, other: Any) -> Expr:
        return call("or_kleene", other, self)

    def __invert__(self) -> Expr:
        return call("invert", self)

    def __neg__(self) -> Expr:
        return call("negate", self)

    def alias(self, name: str) -> Expr:
        """The same under another name.

        Args:
            name: of the column.

        Returns:
            The expression.
        """
        return AliasExpr(self, name)

    def is_null(self) -> Expr:
        """Returns whether each value is NULL."""
        return call("is_null", self)

    def is_not_null(self) -> Expr:
        """Returns whether each value is not NULL."""
        return call("is_valid", self)

    def is_in(self, values: Any) -> Expr:
        """Whether each value is one of these.

        Args:
            values: a list.

        Returns:
            The expression.
        """
        return call("is_in", self, value_set=tuple(values))

    def not_in(self, values: Any) -> Expr:
        """Whether each value is none of these.

        Args:
            values: a list.

        Returns:
            The expression.
        """
        return ~self.is_in(values)

    def cast(self, target_type: Any, *, safe: bool = True) -> Expr:
        """Values of another type.

        Args:
            target_type: of Arrow, or its name.
            safe: whether values that would change are an error.

        Returns:
            The expression.
        """
        kind = pa.type_for_alias(target_type) if isinstance(target_type, str) else target_type
        return call(
            "cast", self, target_type=getattr(kind, "to_arrow_dtype", lambda: kind)(), safe=safe
        )

    def power(self, exponent: Any) -> Expr:
        """A power of each value.

        Args:
            exponent: a number or an expression.

        Returns:
            The expression.
        """
        return call("power", self, exponent)

    def round(self, ndigits: int = 0) -> Expr:
        """Rounded values; halves to the even neighbour.

        Args:
            ndigits: behind the point.

        Returns:
            The expression.
        """
        return call("round", self, ndigits=ndigits)

    def __getattr__(self, name: str) -> Any:
        if name in NAMESPACES:
            return NAMESPACES[name](self)
        if name in _METHODS:
            return functools.partial(call, _METHODS[name], self)
        raise AttributeError(f"an expression has no '{name}'")


# Of one column, by their names in Ray.
_METHODS = {
    **{one: one for one in ("abs", "ceil", "floor", "trunc", "ln", "log10", "log2", "exp", "sign")},
    **{one: one for one in ("sin", "cos", "tan", "asin", "acos", "atan", "negate", "sqrt")},
}


class ColumnExpr(Expr):
    """A column.

    Args:
        name: of it.
    """

    def __init__(self, name: str):
        self._name = name

    def value(self, table: Any) -> Any:
        check_columns([str(self._name)], table.column_names, "expression")
        return table.column(self._name)

    def columns(self) -> set[str]:
        """Returns its name."""
        return {str(self._name)}

    def to_parquet_filter(self) -> Any:
        """Returns the field of this name."""
        return pc.field(self._name)

    def __repr__(self) -> str:
        return f"col({self._name!r})"


class LiteralExpr(Expr):
    """A constant.

    Args:
        value: that Arrow knows.
    """

    def __init__(self, value: Any):
        if isinstance(value, np.generic):
            value = _of_numpy(value)
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError(f"lit({value}): want a whole number from -2**63 to 2**64 - 1")
        self._value = value

    def value(self, table: Any) -> Any:
        if isinstance(self._value, pa.Scalar):
            return self._value
        if isinstance(self._value, int) and self._value >= 2**63:
            return pa.scalar(self._value, pa.uint64())
        return pa.scalar(self._value)

    def to_parquet_filter(self) -> Any:
        """Returns the constant."""
        return pc.scalar(self.value(None))

    def __repr__(self) -> str:
        return f"lit({shown(self._value)})"


def _of_numpy(value: Any) -> Any:
    """A scalar of NumPy; moments and spans keep their nanoseconds."""
    if value.dtype.kind in "mM":
        try:
            return pa.scalar(value)
        except (pa.ArrowException, ValueError, TypeError):  # Units that Arrow does not have.
            pass
    return value.item()


class AliasExpr(Expr):
    """An expression under another name.

    Args:
        expr: the expression.
        name: of its column.
    """

    def __init__(self, expr: Expr, name: str):
        self.expr, self._name = expr, name

    def value(self, table: Any) -> Any:
        return self.expr.value(table)

    def inputs(self) -> Sequence[Expr]:
        return (self.expr,)

    def to_parquet_filter(self) -> Any:
        """Returns that of what it names."""
        return self.expr.to_parquet_filter()

    def __repr__(self) -> str:
        return f"{self.expr!r}.alias({self._name!r})"


class Call(Expr):
    """A kernel of pyarrow.compute, or what invert and cast are there.

    Args:
        kernel: its name in pyarrow.compute.
        args: expressions.
        options: keywords of the kernel.
    """

    def __init__(self, kernel: str, args: tuple[Expr, ...], options: dict[str, Any]):
        self._kernel, self._args, self._options = kernel, args, options

    def value(self, table: Any) -> Any:
        values = [one.value(table) for one in self._args]
        options = dict(self._options)
        if self._kernel == "is_in":
            options = {"values": options["value_set"]}
        compute = _OWN.get(self._kernel) or getattr(pc, self._kernel)
        return guarded(self, functools.partial(compute, *values, **options))

    def inputs(self) -> Sequence[Expr]:
        return self._args

    def kernels(self) -> set[str]:
        """Returns this kernel and those of its arguments."""
        return {self._kernel} | super().kernels()

    def to_parquet_filter(self) -> Any:
        """Returns the same over fields, for comparisons, & | ~, and tests for NULL."""
        if self._kernel not in _IN_READERS:
            return None
        made = [one.to_parquet_filter() for one in self._args]
        if any(one is None for one in made):
            return None
        if self._kernel == "is_in":
            try:
                return made[0].isin(pa.array(self._options["value_set"]))
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                return None  # Values of several types.
        if self._kernel in ("invert", "is_null", "is_valid"):
            return ~made[0] if self._kernel == "invert" else getattr(made[0], self._kernel)()
        a, b = made
        forms: dict[str, Callable[[], Any]] = {
            "greater": lambda: a > b,
            "less": lambda: a < b,
            "greater_equal": lambda: a >= b,
            "less_equal": lambda: a <= b,
            "equal": lambda: a == b,
            "not_equal": lambda: a != b,
            "and_kleene": lambda: a & b,
            "or_kleene": lambda: a | b,
        }
        return forms[self._kernel]()

    def __repr__(self) -> str:
        if self._kernel in SIGNS and len(self._args) == 2:
            return f"({self._args[0]!r} {SIGNS[self._kernel]} {self._args[1]!r})"
        parts = [*map(repr, self._args), *(f"{k}={shown(v)}" for k, v in self._options.items())]
        return f"{self._kernel}({', '.join(parts)})"


class BinaryExpr(Call):
    """An operator between two expressions.

    Args:
        op: which.
        left: an expression, or a value.
        right: another; of Operation.IN a list of values.

    Raises:
        ValueError: it is none of two expressions.
    """

    def __init__(self, op: Operation, left: Any, right: Any):
        self.op, self.right = Operation(op), expression_of(right)
        self.left = left = expression_of(left)
        if self.op == Operation.IN:
            values = right._value if isinstance(right, LiteralExpr) else right
            super().__init__("is_in", (left,), {"value_set": tuple(values)})
        elif self.op in BINARY:
            super().__init__(BINARY[self.op][1], (left, self.right), {})
        else:
            names = [op.name for op in BINARY]
            raise ValueError(f"BinaryExpr: {self.op!r}: want one of {names}, or IN")


class UnaryExpr(Call):
    """An operator of one expression.

    Args:
        op: Operation.NOT, IS_NULL or IS_NOT_NULL.
        operand: the expression.

    Raises:
        ValueError: it is another.
    """

    def __init__(self, op: Operation, operand: Any):
        self.op, self.operand = Operation(op), expression_of(operand)
        if self.op not in UNARY:
            raise ValueError(f"UnaryExpr: {self.op!r}: want one of {[op.name for op in UNARY]}")
        super().__init__(UNARY[self.op], (self.operand,), {})


class Computed(Expr):
    """A function over whole columns.

    Args:
        fn: takes the values of `args` as columns or scalars of Arrow; it must pickle.
        args: expressions, or values.
        name: shown.
    """

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any], name: str):
        self._fn, self._args, self._shown = fn, tuple(map(expression_of, args)), name

    def value(self, table: Any) -> Any:
        values = [one.value(table) for one in self._args]
        return guarded(self, functools.partial(self._fn, *values))

    def inputs(self) -> Sequence[Expr]:
        return self._args

    def __repr__(self) -> str:
        return f"{self._shown}({', '.join(map(repr, self._args))})"


def guarded(expression: Expr, compute: Callable[[], Any]) -> Any:
    """What the function gives; what Arrow raises names the expression."""
    try:
        return compute()
    except (pa.ArrowException, TypeError, ValueError, ZeroDivisionError) as error:
        said = str(error)
        if said == "overflow":
            said += ": whole numbers have 64 bits; cast a column to float64 before"
        raise BatchError(f"{expression}: {said}") from error


def expression_of(value: Any) -> Expr:
    return value if isinstance(value, Expr) else LiteralExpr(value)


def call(kernel: str, *args: Any, **options: Any) -> Expr:
    """An expression that is a kernel of pyarrow.compute.

    Args:
        kernel: its name.
        *args: expressions, or values.
        **options: of the kernel.

    Returns:
        The expression.
    """
    if kernel == "is_in":
        (left,) = args
        return BinaryExpr(Operation.IN, left, list(options["value_set"]))
    op = OF_KERNEL.get(kernel)
    if op is not None:
        return BinaryExpr(op, *args) if op in BINARY else UnaryExpr(op, *args)
    return Call(kernel, tuple(map(expression_of, args)), options)


def col(name: str) -> Expr:
    """A column.

    Args:
        name: of it.

    Returns:
        The expression.
    """
    return ColumnExpr(name)


def lit(value: Any) -> Expr:
    """A constant.

    Args:
        value: that Arrow knows.

    Returns:
        The expression.
    """
    return LiteralExpr(value)
