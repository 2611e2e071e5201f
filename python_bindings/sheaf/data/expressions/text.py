# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Expressions that are written as text."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

from sheaf.data.expressions.expression import Expr, call, col, expression_of

__all__ = ["parse"]

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
        return expression_of(_parsed(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expression {text!r}: {error}; want names of columns, constants, + - * / // % "
            "comparisons, and, or, not, in, is_null(x), is_valid(x)"
        ) from error


def _parsed(node: ast.AST) -> Any:
    if isinstance(node, ast.Name):
        return col(node.id)
    if isinstance(node, ast.BinOp):
        return _TREES[type(node.op)](expression_of(_parsed(node.left)), _parsed(node.right))
    if isinstance(node, ast.BoolOp):
        return functools.reduce(_TREES[type(node.op)], map(_parsed, node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.Invert)):
        return ~_parsed(node.operand)
    if isinstance(node, ast.Compare):
        sides = [expression_of(_parsed(one)) for one in (node.left, *node.comparators[:-1])]
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
