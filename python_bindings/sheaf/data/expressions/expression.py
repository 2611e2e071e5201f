# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What an expression is: a tree that pickles, tells which columns it reads, gives a column for a
table, and becomes a filter of Parquet readers where those have its kernels."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.columns import column_of
from sheaf.data.errors import BatchError, shown
from sheaf.data.schema import check_columns

__all__ = ["Expr", "col", "lit", "parse", "pyarrow_udf", "star", "udf"]

_OPERATORS = {
    "add": ("+", "add"),
    "sub": ("-", "subtract"),
    "mul": ("*", "multiply"),
    "gt": (">", "greater"),
    "lt": ("<", "less"),
    "ge": (">=", "greater_equal"),
    "le": ("<=", "less_equal"),
    "eq": ("==", "equal"),
    "ne": ("!=", "not_equal"),
    "and": ("&", "and_kleene"),
    "or": ("|", "or_kleene"),
}
_SIGNS = {kernel: sign for sign, kernel in _OPERATORS.values()}
# Those that a Parquet reader has, with the same meaning.
_IN_READERS = {*_SIGNS, "invert", "is_null", "is_valid", "is_in"} - {"add", "subtract", "multiply"}


NAMESPACES: dict[str, Callable[[Any], Any]] = {}  # "str" and so on: namespaces.py fills it.


class Expr:
    """An expression. Operators (+ - * / // % == != < <= > >= & | ~) and methods make others.

    Thread-safe: expressions never change.
    """

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

    def value(self, table: Any) -> Any:
        """As evaluate, but a constant stays a pa.Scalar.

        Args:
            table: a pa.Table.

        Returns:
            A column or a scalar.
        """
        raise NotImplementedError

    def inputs(self) -> Sequence[Expr]:
        """Returns the expressions that it is made of."""
        return ()

    def columns(self) -> set[str]:
        """Returns the names of all columns that it reads."""
        return set().union(*(one.columns() for one in self.inputs()))

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
        return isinstance(other, Expr) and repr(self) == repr(other)

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self} has no truth value: write & | ~ for and, or, not, with each side in brackets"
        )

    __hash__ = object.__hash__

    def __add__(self, other: Any) -> Expr:
        return Computed(_add, (self, other), "+")

    def __radd__(self, other: Any) -> Expr:
        return Computed(_add, (other, self), "+")

    def __sub__(self, other: Any) -> Expr:
        return call("subtract", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return call("subtract", other, self)

    def __mul__(self, other: Any) -> Expr:
        return call("multiply", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return call("multiply", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return Computed(_divide, (self, other), "/")

    def __rtruediv__(self, other: Any) -> Expr:
        return Computed(_divide, (other, self), "/")

    def __floordiv__(self, other: Any) -> Expr:
        return Computed(_floor_divide, (self, other), "//")

    def __rfloordiv__(self, other: Any) -> Expr:
        return Computed(_floor_divide, (other, self), "//")

    def __mod__(self, other: Any) -> Expr:
        return Computed(_remainder, (self, other), "%")

    def __rmod__(self, other: Any) -> Expr:
        return Computed(_remainder, (other, self), "%")

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
        return _Alias(self, name)

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


class _Column(Expr):
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


class _Literal(Expr):
    def __init__(self, value: Any):
        self._value = value.item() if isinstance(value, np.generic) else value

    def value(self, table: Any) -> Any:
        return self._value if isinstance(self._value, pa.Scalar) else pa.scalar(self._value)

    def to_parquet_filter(self) -> Any:
        """Returns the constant."""
        return pc.scalar(self._value)

    def __repr__(self) -> str:
        return f"lit({shown(self._value)})"


class _Alias(Expr):
    def __init__(self, inner: Expr, name: str):
        self._inner, self._name = inner, name

    def value(self, table: Any) -> Any:
        return self._inner.value(table)

    def inputs(self) -> Sequence[Expr]:
        return (self._inner,)

    def to_parquet_filter(self) -> Any:
        """Returns that of what it names."""
        return self._inner.to_parquet_filter()

    def __repr__(self) -> str:
        return f"{self._inner!r}.alias({self._name!r})"


class Star(Expr):
    """All columns; select and with_columns take it apart."""

    def __repr__(self) -> str:
        return "star()"


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
            options["value_set"] = pa.array(options["value_set"])
            if len(options["value_set"]) and not pa.types.is_null(values[0].type):
                options["value_set"] = options["value_set"].cast(values[0].type)
        return guarded(self, functools.partial(getattr(pc, self._kernel), *values, **options))

    def inputs(self) -> Sequence[Expr]:
        return self._args

    def to_parquet_filter(self) -> Any:
        """Returns the same over fields, for comparisons, & | ~, and tests for NULL."""
        if self._kernel not in _IN_READERS:
            return None
        made = [one.to_parquet_filter() for one in self._args]
        if any(one is None for one in made):
            return None
        if self._kernel == "is_in":
            return made[0].isin(list(self._options["value_set"]))
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
        if self._kernel in _SIGNS and len(self._args) == 2:
            return f"({self._args[0]!r} {_SIGNS[self._kernel]} {self._args[1]!r})"
        parts = [*map(repr, self._args), *(f"{k}={shown(v)}" for k, v in self._options.items())]
        return f"{self._kernel}({', '.join(parts)})"


class Computed(Expr):
    """A function over whole columns.

    Args:
        fn: takes the values of `args` as columns or scalars of Arrow; it must pickle.
        args: expressions, or values.
        name: shown.
    """

    def __init__(self, fn: Callable[..., Any], args: Sequence[Any], name: str):
        self._fn, self._args, self._shown = fn, tuple(map(_expression, args)), name

    def value(self, table: Any) -> Any:
        values = [one.value(table) for one in self._args]
        return guarded(self, functools.partial(self._fn, *values))

    def inputs(self) -> Sequence[Expr]:
        return self._args

    def __repr__(self) -> str:
        if self._shown in ("+", "/", "//", "%"):
            return f"({self._args[0]!r} {self._shown} {self._args[1]!r})"
        return f"{self._shown}({', '.join(map(repr, self._args))})"


class _Udf(Expr):
    """A user's function over columns as NumPy arrays, or as Arrow's."""

    def __init__(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], kind: Any, arrow: bool
    ):
        self._fn, self._kind, self._arrow = fn, kind, arrow
        self._args = tuple(map(_expression, args))
        self._kwargs = {name: _expression(value) for name, value in kwargs.items()}

    def value(self, table: Any) -> Any:
        from sheaf.data.columns import column_to_numpy
        from sheaf.data.user_code import bound, operator_name, user_error

        def given(one: Expr) -> Any:
            value = one.value(table)
            if isinstance(value, pa.Scalar):
                return value if self._arrow else value.as_py()
            whole = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
            return whole if self._arrow else column_to_numpy(whole)

        args = [given(one) for one in self._args]
        kwargs = {name: given(one) for name, one in self._kwargs.items()}
        name = operator_name("Expression", self._fn)
        try:
            column = column_of(name, bound(self._fn)(*args, **kwargs))
            return column if self._kind is None else column.cast(self._kind)
        except Exception as error:
            raise user_error(name, error) from error

    def inputs(self) -> Sequence[Expr]:
        return [*self._args, *self._kwargs.values()]

    def __repr__(self) -> str:
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        return f"{name}({', '.join(map(repr, self.inputs()))})"


def guarded(expression: Expr, compute: Callable[[], Any]) -> Any:
    """What the function gives; what Arrow raises names the expression."""
    try:
        return compute()
    except (pa.ArrowException, TypeError, ValueError, ZeroDivisionError) as error:
        raise BatchError(f"{expression}: {error}") from error


def _expression(value: Any) -> Expr:
    return value if isinstance(value, Expr) else _Literal(value)


def call(kernel: str, *args: Any, **options: Any) -> Expr:
    """An expression that is a kernel of pyarrow.compute.

    Args:
        kernel: its name.
        *args: expressions, or values.
        **options: of the kernel.

    Returns:
        The expression.
    """
    return Call(kernel, tuple(map(_expression, args)), options)


def _float(value: Any) -> Any:
    return value.cast(pa.float64()) if pa.types.is_integer(value.type) else value


def _is_text(value: Any) -> bool:
    return bool(pa.types.is_string(value.type) or pa.types.is_large_string(value.type))


def _add(a: Any, b: Any) -> Any:
    """The sum; text behind text."""
    if _is_text(a) and _is_text(b):
        return pc.binary_join_element_wise(a, b, pa.scalar("", b.type))
    return pc.add(a, b)


def _divide(a: Any, b: Any) -> Any:
    """As Python has it: of integers a float. By zero: infinity or NaN."""
    return pc.divide(_float(a), _float(b))


def _floor_divide(a: Any, b: Any) -> Any:
    if not (pa.types.is_integer(a.type) and pa.types.is_integer(b.type)):
        return pc.floor(_divide(a, b))
    down = pc.divide(a, b)
    rest = pc.subtract(a, pc.multiply(down, b))
    other_sign = pc.and_(pc.not_equal(rest, 0), pc.not_equal(pc.less(rest, 0), pc.less(b, 0)))
    return pc.subtract(down, pc.cast(other_sign, pa.int64()))


def _remainder(a: Any, b: Any) -> Any:
    return pc.subtract(a, pc.multiply(_floor_divide(a, b), b))


def col(name: str) -> Expr:
    """A column.

    Args:
        name: of it.

    Returns:
        The expression.
    """
    return _Column(name)


def lit(value: Any) -> Expr:
    """A constant.

    Args:
        value: that Arrow knows.

    Returns:
        The expression.
    """
    return _Literal(value)


def star() -> Expr:
    """All columns, where several are named. Returns the expression."""
    return Star()


def _maker(return_dtype: Any, arrow: bool) -> Callable[[Any], Callable[..., Expr]]:
    kind = getattr(return_dtype, "to_arrow_dtype", lambda: return_dtype)()

    def decorate(fn: Any) -> Callable[..., Expr]:
        if isinstance(fn, type):
            from sheaf.data.user_code import ClassUdf

            def made(*args: Any, **kwargs: Any) -> Callable[..., Expr]:
                udf = ClassUdf(fn, args, kwargs)
                return lambda *a, **k: _Udf(udf, a, k, kind, arrow)

            return made  # type: ignore[return-value]
        return functools.wraps(fn)(lambda *args, **kwargs: _Udf(fn, args, kwargs, kind, arrow))

    return decorate


def udf(return_dtype: Any = None) -> Callable[[Any], Callable[..., Expr]]:
    """Makes a function of NumPy arrays one of expressions; of a class, its instances.

    Args:
        return_dtype: the Arrow type of the result; as it comes when not given.

    Returns:
        The decorator.
    """
    return _maker(return_dtype, arrow=False)


def pyarrow_udf(return_dtype: Any = None) -> Callable[[Any], Callable[..., Expr]]:
    """Makes a function of Arrow arrays one of expressions; of a class, its instances.

    Args:
        return_dtype: the Arrow type of the result; as it comes when not given.

    Returns:
        The decorator.
    """
    return _maker(return_dtype, arrow=True)


_TREES: dict[type, Callable[..., Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.And: lambda a, b: a & b,
    ast.Or: lambda a, b: a | b,
    ast.Gt: lambda a, b: a > b,
    ast.Lt: lambda a, b: a < b,
    ast.GtE: lambda a, b: a >= b,
    ast.LtE: lambda a, b: a <= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}


def parse(text: str) -> Expr:
    """An expression that is written as text: "price * 2 > 10 and kind in ['a', 'b']". Names are
    columns; nothing is called or evaluated but operators.

    Args:
        text: in Python's syntax.

    Returns:
        The expression.

    Raises:
        ValueError: it has another form.
    """
    try:
        return _expression(_parsed(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expression {text!r}: {error}; want names of columns, constants, + - * / // % "
            "comparisons, and, or, not, in, is_null(x), is_valid(x)"
        ) from error


def _parsed(node: ast.AST) -> Any:
    if isinstance(node, ast.Name):
        return col(node.id)
    if isinstance(node, ast.BinOp):
        return _TREES[type(node.op)](_expression(_parsed(node.left)), _parsed(node.right))
    if isinstance(node, ast.BoolOp):
        return functools.reduce(_TREES[type(node.op)], map(_parsed, node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        return ~_parsed(node.operand)
    if isinstance(node, ast.Compare):
        sides = [_expression(_parsed(one)) for one in (node.left, *node.comparators[:-1])]
        parts = []
        for left, operator, right in zip(sides, node.ops, node.comparators):
            if isinstance(operator, (ast.In, ast.NotIn)):
                values = ast.literal_eval(right)
                found = left.is_in(values)
                parts.append(~found if isinstance(operator, ast.NotIn) else found)
            else:
                parts.append(_TREES[type(operator)](left, _parsed(right)))
        return functools.reduce(lambda a, b: a & b, parts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
        if node.func.id in ("is_null", "is_valid"):
            return call(node.func.id, _parsed(node.args[0]))
        raise TypeError(f"function {node.func.id}")
    return ast.literal_eval(node)
