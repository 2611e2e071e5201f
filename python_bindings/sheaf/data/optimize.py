# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""From a logical plan to one that reads less and gives the same: only columns that somebody looks
at, and no rows that a filter or limit behind the source leaves out. Pure.

A plan whose columns do not fit stays as it is, so that the operator which wants the wrong one says
so when it runs.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from sheaf.data import plan, transforms
from sheaf.data.errors import DataError
from sheaf.data.exchanges.aggregation import Aggregate
from sheaf.data.exchanges.exchange import ByKeys, Shuffle
from sheaf.data.exchanges.sort import Sort
from sheaf.data.expressions.several import StarExpr, UnnestExpr

__all__ = ["optimized"]

_Columns = frozenset[str] | None  # That are looked at; None: all, as far as is known.
_OWN_AGGREGATES = "sheaf.data.aggregate"  # Where those are that say which columns they read.


def optimized(node: plan.Node) -> plan.Node:
    """A plan that gives the same.

    Args:
        node: a plan.

    Returns:
        The plan to run.
    """
    return _folded(_narrowed(node))


# Columns.


def _narrowed(node: plan.Node) -> plan.Node:
    """The node over sources that read no column in vain."""
    made: list[plan.Node] = []
    left: list[tuple[plan.Node, _Columns, bool]] = [(node, None, False)]
    while left:
        node, wanted, is_ready = left.pop()
        if isinstance(node, plan.Read):
            made.append(_narrow_read(node, wanted))
        elif is_ready:
            _put_over_inputs(node, made)
        else:
            if isinstance(node, plan.Drop):
                node = _kept(node)
            below = _looked_at(node, wanted)
            left.append((node, wanted, True))
            left += [(child, below, False) for child in reversed(node.inputs)]
    return made[0]


def _kept(node: plan.Drop) -> plan.Map:
    """A Drop as a Select of the other columns, where they are known."""
    schema = _schema(node.inputs[0])
    if schema is None or not set(node.columns) <= set(schema.names):
        return node
    names = tuple(name for name in schema.names if name not in node.columns)
    fields = {field.name: getattr(node, field.name) for field in dataclasses.fields(node)}
    return plan.Select(**{**fields, "transform": transforms.select(names), "columns": names})


def _schema(node: plan.Node) -> Any:
    """As plan.known_schema; None, too, where an operator wants a column that is not there."""
    try:
        return plan.known_schema(node)
    except DataError:
        return None


def _over(node: plan.Node, inputs: list[plan.Node]) -> plan.Node:
    same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
    return node if same else node.with_inputs(*inputs)


def _put_over_inputs(node: plan.Node, made: list[plan.Node]) -> None:
    """Puts the node over its inputs, which are the last of `made`, in their place."""
    first = len(made) - len(node.inputs)
    made[first:] = [_over(node, made[first:])]


def _narrow_read(node: plan.Read, wanted: _Columns) -> plan.Node:
    schema = _schema(node)
    if wanted is None or schema is None or not _can(node.datasource, "supports_projection"):
        return node
    if not wanted <= set(schema.names):
        return node
    columns = [name for name in schema.names if name in wanted] or _narrowest(schema)
    if len(columns) == len(schema.names):
        return node
    return _reading(node, node.datasource.with_projection(columns))


def _narrowest(schema: Any) -> list[str]:
    """The column that tells with the fewest bytes how many rows there are."""

    def width(field: Any) -> int:
        return field.type.bit_width if pa.types.is_primitive(field.type) else 1 << 20

    return [field.name for field in sorted(schema, key=width)[:1]]


def _reading(node: plan.Read, datasource: Any) -> plan.Read:
    return plan.Read((), datasource, node.parallelism, node.options)


def _can(datasource: Any, question: str, *of: Any) -> bool:
    """What a source answers; one that is not derived from Datasource need not know the question."""
    return bool(getattr(datasource, question, lambda *_: False)(*of))


def _looked_at(node: plan.Node, wanted: _Columns) -> _Columns:
    """The columns of its inputs that an operator looks at, when `wanted` of its own are."""
    if isinstance(node, plan.Count):
        return frozenset()
    if isinstance(node, plan.Select):
        return frozenset(node.columns)
    if isinstance(node, plan.FilterExpr):
        return _with(wanted, _read_by([node.expression]))
    if isinstance(node, plan.WithColumns):
        rest = None if wanted is None else wanted - set(node.expressions)
        return _with(rest, _read_by(node.expressions.values()))
    if isinstance(node, plan.Map):
        return wanted if node.is_plain and node.keeps_schema else None
    if isinstance(node, plan.Exchange):
        return _looked_at_by_exchange(node.method, wanted)
    passes = (plan.Limit, plan.Union, plan.Repartition, plan.RandomizeBlocks)
    return wanted if isinstance(node, passes) else None


def _with(a: _Columns, b: _Columns) -> _Columns:
    return None if a is None or b is None else a | b


def _read_by(expressions: Iterable[Any]) -> _Columns:
    """The columns that expressions read; None where one stands for all."""
    found: set[str] = set()
    for expression in expressions:
        if isinstance(expression, (StarExpr, UnnestExpr)):
            return None
        below = _read_by(expression.inputs())
        if below is None:
            return None
        found |= below | expression.columns()
    return frozenset(found)


def _looked_at_by_exchange(method: Any, wanted: _Columns) -> _Columns:
    if isinstance(method, Aggregate):
        found = set(method.keys)
        for one in method.aggregates:
            if not type(one).__module__.startswith(_OWN_AGGREGATES) or not hasattr(one, "_on"):
                return None
            found.update(one.columns())
        return frozenset(found)
    if type(method) is Shuffle:
        return wanted
    if type(method) is ByKeys:
        return _with(wanted, frozenset(method.keys))
    if type(method) is Sort:
        return _with(wanted, frozenset(name for name, _ in method.keys))
    return None


# Rows.


def _folded(node: plan.Node) -> plan.Node:
    """The node with operators taken into the sources right below them."""
    made: list[plan.Node] = []
    for one in plan.walk(node):
        _put_over_inputs(one, made)
        made[-1] = _into_source(made[-1])
    return made[0]


def _into_source(node: plan.Node) -> plan.Node:
    if isinstance(node, plan.Limit):
        return _over(node, [_limited(node.inputs[0], node.count)])
    if not isinstance(node, plan.Map) or not node.default_options:
        return node
    below = node.inputs[0]
    if not isinstance(below, plan.Read):
        return node
    source = below.datasource
    if isinstance(node, plan.FilterExpr) and _can(source, "supports_predicate", node.expression):
        return _reading(below, source.with_predicate(node.expression))
    if isinstance(node, plan.Select) and _can(source, "supports_projection"):
        schema = _schema(below)
        if schema is not None and set(node.columns) <= set(schema.names):
            return _reading(below, source.with_projection(node.columns))
    return node


def _limited(node: plan.Node, rows: int) -> plan.Node:
    """What gives the first rows of a node, and perhaps more."""
    above: list[plan.Node] = []
    while isinstance(node, plan.Map) and node.keeps_rows and node.is_plain:
        above.append(node)
        node = node.inputs[0]
    node = _limited_source(node, rows)
    for one in reversed(above):
        node = _over(one, [node])
    return node


def _limited_source(node: plan.Node, rows: int) -> plan.Node:
    if isinstance(node, plan.Blocks):
        ends = itertools.accumulate(bundle.num_rows for bundle in node.bundles)
        needed = next((n for n, end in enumerate(ends, 1) if end >= rows), len(node.bundles))
        return dataclasses.replace(node, bundles=node.bundles[:needed])
    if not isinstance(node, plan.Read):
        return node
    shorten = getattr(node.datasource, "with_row_limit", None)
    shorter = shorten(rows) if shorten is not None else node.datasource
    return node if shorter is node.datasource else _reading(node, shorter)
