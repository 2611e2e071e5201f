# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Users' functions over whole columns as expressions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data.columns import column_to_numpy
from sheaf.data.expressions.expression import Expr, expression_of
from sheaf.data.user_code import ClassUdf, bound, operator_name, own_column, user_error
from sheaf.data.util.memory import Memory

__all__ = ["pyarrow_udf", "udf"]


class UDFExpr(Expr):
    """A user's function over columns as NumPy arrays, or as Arrow's.

    Args:
        fn: the function, or a class with its arguments.
        args, kwargs: expressions, or values.
        kind: the Arrow type of the result; None: as it comes.
        arrow: whether it takes Arrow's arrays.
    """

    def __init__(
        self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], kind: Any, arrow: bool
    ):
        self.fn, self._kind, self._arrow = fn, kind, arrow
        self.args = tuple(map(expression_of, args))
        self.kwargs = {name: expression_of(value) for name, value in kwargs.items()}

    def value(self, table: Any) -> Any:
        def given(one: Expr) -> Any:
            value = one.value(table)
            if isinstance(value, pa.Scalar):
                return value if self._arrow else value.as_py()
            whole = value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value
            return whole if self._arrow else column_to_numpy(whole)

        args = [given(one) for one in self.args]
        kwargs = {name: given(one) for name, one in self.kwargs.items()}
        name = operator_name("Expression", self.fn)
        try:
            box = [bound(self.fn)(*args, **kwargs)]
            column = own_column(name, box, 0, memory=Memory(table))
            return column if self._kind is None else column.cast(self._kind)
        except Exception as error:
            raise user_error(name, error) from error

    def inputs(self) -> Sequence[Expr]:
        return [*self.args, *self.kwargs.values()]

    def __repr__(self) -> str:
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"{name}({', '.join(map(repr, self.inputs()))})"


def _maker(return_dtype: Any, arrow: bool) -> Callable[[Any], Callable[..., Expr]]:
    kind = getattr(return_dtype, "to_arrow_dtype", lambda: return_dtype)()

    def decorate(fn: Any) -> Callable[..., Expr]:
        if isinstance(fn, type):

            def made(*args: Any, **kwargs: Any) -> Callable[..., Expr]:
                udf = ClassUdf(fn, args, kwargs)
                return lambda *a, **k: UDFExpr(udf, a, k, kind, arrow)

            return made  # type: ignore[return-value]
        return functools.wraps(fn)(lambda *args, **kwargs: UDFExpr(fn, args, kwargs, kind, arrow))

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
