# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Aggregates over groups of rows, in three steps that run in different processes: `partial` makes
one row of states per group of a block, `merge` joins such rows, `finish` makes results of states.
Those of this module run in pyarrow and NumPy; AggregateFn and AggregateFnV2 take a user's
functions.

Groups come in the order in which their keys first come. NULL keys are one group, NaN is one, and
-0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data import arrow_types
from sheaf.data.block import table_to_rows
from sheaf.data.columns import column_of, values_of
from sheaf.data.errors import BatchError
from sheaf.data.schema import check_columns

__all__ = [
    "AbsMax",
    "AggregateFn",
    "AggregateFnV2",
    "ApproximateQuantile",
    "AsList",
    "Count",
    "CountDistinct",
    "Max",
    "Mean",
    "Min",
    "MissingValuePercentage",
    "Quantile",
    "Std",
    "Sum",
    "Unique",
    "ValueCounter",
    "ZeroPercentage",
    "finish",
    "merge",
    "partial",
]


class Groups:
    """Rows of a table by their keys."""

    def __init__(self, table: Any, keys: Sequence[str]):
        self.table = table
        columns = [_key(name, table.column(name)) for name in keys]
        # A constant, so that no keys are one group.
        columns.append(pa.chunked_array([pa.nulls(table.num_rows, pa.int8())]))
        names = [f"k{number}" for number in range(len(columns))]
        rows = pa.array(np.arange(table.num_rows))
        found = (
            pa.table([*columns, rows], names=[*names, "row"])
            .group_by(names, use_threads=False)
            .aggregate([("row", "list")])
        )
        # Arrow numbers groups as it likes: here they come in the order of their first rows.
        first = pc.list_element(found.column("row_list"), 0).to_numpy()
        found = found.take(pa.array(np.argsort(first)))
        lists = found.column("row_list").combine_chunks()
        self.order = lists.flatten().to_numpy()  # Rows by groups.
        self.lengths = lists.value_lengths().to_numpy()
        self.count = len(self.lengths)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])[: self.count].astype(np.int64)
        self.keys = pa.table([found.column(name) for name in names[:-1]], names=list(keys))
        self.ids = np.empty(table.num_rows, np.int64)
        self.ids[self.order] = np.repeat(np.arange(self.count), self.lengths)

    def aggregated(self, column: Any, function: str, options: Any = None) -> Any:
        """One value per group, by a hash kernel of Arrow."""
        table = pa.table([pa.chunked_array([self.ids]), column], names=["g", "x"])
        found = table.group_by("g", use_threads=False).aggregate([("x", function, options)])
        order = np.argsort(found.column("g").to_numpy())
        return found.column(f"x_{function}").take(pa.array(order)).combine_chunks()

    def lists(self, column: Any) -> Any:
        """The values of each group as a list."""
        values = column.take(pa.array(self.order)).combine_chunks()
        return _lists(values, self.lengths)

    def joined(self, column: Any) -> Any:
        """The lists of each group, one behind the other."""
        lists = column.take(pa.array(self.order)).combine_chunks()
        sizes = lists.value_lengths().fill_null(0).to_numpy()
        ends = np.concatenate([[0], np.cumsum(sizes)])
        bounds = np.concatenate([self.starts, [len(self.order)]])
        return _lists(lists.flatten(), np.diff(ends[bounds]))


def _lists(values: Any, lengths: Any) -> Any:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def _key(name: str, column: Any) -> Any:
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.add(column, pa.scalar(0.0, kind))  # -0.0 becomes 0.0.
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        raise BatchError(f"column '{name}' is {kind}, by which rows cannot be grouped")
    return column


class AggregateFn:
    """An aggregate of a user's functions.

    Args:
        init: gives the state of no rows; takes the group's key.
        merge: takes two states and gives that of both.
        name: of the result's column.
        accumulate_row: takes a state and a row, gives the new state; or
        accumulate_block: takes a state and a block, gives the new state.
        finalize: takes a state and gives the result; the state itself when not given.
    """

    def __init__(
        self,
        init: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
        name: str,
        accumulate_row: Callable[[Any, dict[str, Any]], Any] | None = None,
        accumulate_block: Callable[[Any, Any], Any] | None = None,
        finalize: Callable[[Any], Any] | None = None,
    ):
        if (accumulate_row is None) == (accumulate_block is None):
            raise ValueError(f"{name}: give one of accumulate_row and accumulate_block")
        self.name = name
        self._init, self._merge, self._row = init, merge, accumulate_row
        self._block, self._finalize = accumulate_block, finalize or (lambda state: state)

    def columns(self) -> list[str]:
        """Returns the names of the columns that it reads; all may be read when there are none."""
        return []

    def states(self, groups: Groups) -> list[Any]:
        """The states of each group of a block.

        Args:
            groups: of the block.

        Returns:
            Columns, one value per group.
        """
        made = []
        keys = groups.keys.to_pylist() or [{}] * groups.count
        for number, start in enumerate(groups.starts):
            rows = groups.order[start : start + groups.lengths[number]]
            block = groups.table.take(pa.array(rows))
            values = list(keys[number].values())
            state = self._init(values[0] if len(values) == 1 else tuple(values) or None)
            made.append(self._accumulated(state, block))
        return [arrow_types.objects_array(made)]

    def _accumulated(self, state: Any, block: Any) -> Any:
        if self._block is not None:
            return self._block(state, block)
        assert self._row is not None
        for row in table_to_rows(block):
            state = self._row(state, row)
        return state

    def merged(self, groups: Groups, states: list[Any]) -> list[Any]:
        """The states of each group, of several of its states.

        Args:
            groups: of rows of states.
            states: columns, as of `states`.

        Returns:
            Columns, one value per group.
        """
        values = values_of(states[0])
        made = []
        for number, start in enumerate(groups.starts):
            first, *rest = groups.order[start : start + groups.lengths[number]]
            state = values[first]
            for row in rest:
                state = self._merge(state, values[row])
            made.append(state)
        return [arrow_types.objects_array(made)]

    def results(self, states: list[Any]) -> Any:
        """The results of states.

        Args:
            states: columns, as of `states`.

        Returns:
            A column.
        """
        return column_of(self.name, [self._finalize(state) for state in values_of(states[0])])

    def partial(self, table: Any, keys: Sequence[str]) -> Any:
        """As the function of this name, of this aggregate alone.

        Args:
            table: a block.
            keys: names of columns.

        Returns:
            A pa.Table of keys and states.
        """
        return partial(table, keys, [self])

    def merge(self, table: Any, keys: Sequence[str]) -> Any:
        """As the function of this name, of this aggregate alone.

        Args:
            table: of keys and states.
            keys: names of columns.

        Returns:
            A pa.Table of keys and states.
        """
        return merge(table, keys, [self])

    def finish(self, table: Any, keys: Sequence[str] = ()) -> Any:
        """As the function of this name, of this aggregate alone.

        Args:
            table: of keys and states.
            keys: names of columns; those that are no states when not given.

        Returns:
            A pa.Table of keys and results.
        """
        keys = keys or [name for name in table.column_names if "\0" not in name]
        return finish(table, keys, [self])


def runs_code_of_user(aggregate: AggregateFn) -> bool:
    """Whether an aggregate calls functions that are not of this module.

    Args:
        aggregate: of AggregateFn or a class derived from it.

    Returns:
        False: it is one of the classes made here.
    """
    return type(aggregate) is AggregateFn or type(aggregate).__module__ != __name__


class AggregateFnV2(AggregateFn):
    """An aggregate as a class: derive from it and define aggregate_block, combine and, where
    results are not the states, finalize.

    Args:
        name: of the result's column.
        zero_factory: gives the state of no rows.
        on: the column that is aggregated; None: rows.
        ignore_nulls: blocks come without the rows in which that column is NULL.
    """

    def __init__(
        self, name: str, zero_factory: Callable[[], Any], *, on: str | None, ignore_nulls: bool
    ):
        self._target_col_name, self._ignore_nulls = on, ignore_nulls
        self._zero = zero_factory
        super().__init__(
            lambda key: self._zero(),
            lambda a, b: self.combine(a, b),
            name,
            accumulate_block=self._one_block,
            finalize=lambda state: self.finalize(state),
        )

    def _one_block(self, state: Any, block: Any) -> Any:
        if self._ignore_nulls and self._target_col_name:
            block = block.filter(block.column(self._target_col_name).is_valid())
        return self.combine(state, self.aggregate_block(block)) if block.num_rows else state

    def columns(self) -> list[str]:
        """Returns the column that it reads, if it reads one."""
        return [self._target_col_name] if self._target_col_name else []

    def get_target_column(self) -> str | None:
        """Returns the column that is aggregated, or None."""
        return self._target_col_name

    def get_agg_name(self) -> str:
        """Returns the name of the kind of aggregate."""
        return type(self).__name__

    def aggregate_block(self, block: Any) -> Any:
        """The state of a block's rows.

        Args:
            block: a pa.Table.

        Returns:
            The state; it must pickle.
        """
        raise NotImplementedError(f"{type(self).__name__} has no aggregate_block")

    def combine(self, current_accumulator: Any, new: Any) -> Any:
        """The state of both.

        Args:
            current_accumulator: a state.
            new: a state.

        Returns:
            The state.
        """
        raise NotImplementedError(f"{type(self).__name__} has no combine")

    def finalize(self, accumulator: Any) -> Any:
        """The result of a state.

        Args:
            accumulator: a state.

        Returns:
            The result.
        """
        return accumulator


def _state_names(aggregates: Sequence[AggregateFn], table: Any) -> list[list[str]]:
    names: list[list[str]] = [[] for _ in aggregates]
    for name in table.column_names:
        number, mark, _ = name.partition("\0\0")
        if mark:
            names[int(number)].append(name)
    return names


def _with_states(keys: Any, states: list[list[Any]]) -> Any:
    columns = list(keys.columns)
    names = list(keys.column_names)
    for number, several in enumerate(states):
        for place, state in enumerate(several):
            columns.append(state)
            names.append(f"{number}\0\0{place}")
    return pa.table(columns, names=names)


def partial(table: Any, keys: Sequence[str], aggregates: Sequence[AggregateFn]) -> Any:
    """One row of states per group of a block.

    Args:
        table: a block.
        keys: the columns by which rows are grouped; none: all rows are one group.
        aggregates: which.

    Returns:
        A pa.Table with the keys, and the states in further columns.

    Raises:
        ColumnNotFoundError: there is no such column.
        BatchError: a column's type has no such aggregate.
    """
    wanted = [*keys, *(name for aggregate in aggregates for name in aggregate.columns())]
    check_columns(wanted, table.column_names, "groupby" if keys else "aggregate")
    groups = Groups(table, keys)
    states = []
    for aggregate in aggregates:
        try:
            states.append(aggregate.states(groups))
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            column = aggregate.columns()[0]
            kind = table.schema.field(column).type
            raise BatchError(
                f"{aggregate.name}: column '{column}' is {kind}, which has no such aggregate"
            ) from error
    return _with_states(groups.keys, states)


def merge(table: Any, keys: Sequence[str], aggregates: Sequence[AggregateFn]) -> Any:
    """One row of states per group, of several.

    Args:
        table: what `partial` or `merge` gave, one below the other.
        keys: as of partial.
        aggregates: as of partial.

    Returns:
        A pa.Table of the same columns.
    """
    groups = Groups(table, keys)
    states = [
        aggregate.merged(groups, [table.column(name) for name in names])
        for aggregate, names in zip(aggregates, _state_names(aggregates, table))
    ]
    return _with_states(groups.keys, states)


def finish(table: Any, keys: Sequence[str], aggregates: Sequence[AggregateFn]) -> Any:
    """Results of states.

    Args:
        table: what `partial` or `merge` gave, one row per group.
        keys: as of partial.
        aggregates: as of partial.

    Returns:
        A pa.Table with the keys, and a column for each aggregate, of its name.
    """
    columns = [table.column(name) for name in keys]
    for aggregate, names in zip(aggregates, _state_names(aggregates, table)):
        columns.append(aggregate.results([table.column(name) for name in names]))
    return pa.table(columns, names=[*keys, *(aggregate.name for aggregate in aggregates)])


class _Kernels(AggregateFn):
    """An aggregate of Arrow's kernels: columns made of the one that is aggregated, each summed (or
    "min", "max") within a block and over blocks."""

    _KIND = ""

    def __init__(
        self, on: str | None = None, ignore_nulls: bool = True, alias_name: str | None = None
    ):
        self._on, self._ignore_nulls = on, ignore_nulls
        self.name = alias_name or f"{self._KIND}({on or ''})"

    def columns(self) -> list[str]:
        """Returns the column that it reads, if it reads one."""
        return [self._on] if self._on else []

    def get_target_column(self) -> str | None:
        """Returns the column that is aggregated, or None."""
        return self._on

    def _column(self, groups: Groups) -> Any:
        if self._on is None:
            raise BatchError(f"{self.name}: say which column, on='...'")
        column = groups.table.column(self._on)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column.cast(pa.int64()) if pa.types.is_boolean(column.type) else column

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        raise NotImplementedError

    _MERGES: tuple[str, ...] = ("sum",)

    def _options(self) -> Any:
        return pc.ScalarAggregateOptions(skip_nulls=self._ignore_nulls, min_count=1)

    def states(self, groups: Groups) -> list[Any]:
        """The states of each group of a block."""
        return [
            groups.aggregated(column, function, self._options())
            for column, function in self._parts(groups)
        ]

    def merged(self, groups: Groups, states: list[Any]) -> list[Any]:
        """The states of each group, of several of its states."""
        return [
            groups.aggregated(state, function, self._options())
            for state, function in zip(states, self._MERGES)
        ]

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        return states[0]


class Count(_Kernels):
    """How many rows there are; those where `on` is not NULL with ignore_nulls.

    Args:
        on: a column.
        ignore_nulls: leaves out NULLs.
        alias_name: of the result.
    """

    _KIND = "count"

    def __init__(
        self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None
    ):
        super().__init__(on, ignore_nulls, alias_name)

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        if self._on is None or not self._ignore_nulls:
            ones = np.ones(groups.table.num_rows, np.int64)
            return [(pa.chunked_array([ones]), "sum")]
        return [(groups.table.column(self._on).is_valid().cast(pa.int64()), "sum")]


class Sum(_Kernels):
    """The sum of a column; NULL of no values. Arguments as of Count."""

    _KIND = "sum"

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        return [(self._column(groups), "sum")]


class Min(_Kernels):
    """The least value of a column.

    Args:
        on: the column.
        ignore_nulls: False: NULL when one value is.
        alias_name: of the result.
        zero_factory: has no effect.
    """

    _KIND = "min"
    _MERGES = ("min",)

    def __init__(
        self,
        on: str | None = None,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
        zero_factory: Any = None,
    ):
        super().__init__(on, ignore_nulls, alias_name)

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        return [(self._column(groups), self._MERGES[0])]


class Max(Min):
    """The greatest value of a column. Arguments as of Min."""

    _KIND = "max"
    _MERGES = ("max",)


class AbsMax(Max):
    """The greatest absolute value of a column. Arguments as of Min."""

    _KIND = "abs_max"

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        return [(pc.abs(self._column(groups)), "max")]


class Mean(_Kernels):
    """The mean of a column; NULL of no values. Arguments as of Count."""

    _KIND = "mean"
    _MERGES = ("sum", "sum")

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        column = self._column(groups)
        there = column.is_valid().cast(pa.float64())
        return [(column.cast(pa.float64()), "sum"), (there, "sum")]

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        total, count = states
        return pc.if_else(pc.equal(count, 0.0), None, pc.divide(total, count))


class Std(_Kernels):
    """The standard deviation of a column, by squares of distances from the mean, so that large
    means cost no digits.

    Args:
        on: the column.
        ddof: what is taken off the number of values; 1: of a sample, 0: of all there is.
        ignore_nulls: False: NULL when one value is.
        alias_name: of the result.
    """

    _KIND = "std"

    def __init__(
        self,
        on: str | None = None,
        ddof: int = 1,
        ignore_nulls: bool = True,
        alias_name: str | None = None,
    ):
        super().__init__(on, ignore_nulls, alias_name)
        self._ddof = ddof

    def states(self, groups: Groups) -> list[Any]:
        """Number, mean, and sum of squared distances from it, of each group."""
        column = self._column(groups).cast(pa.float64())
        values = column.to_numpy()
        there = column.is_valid().to_numpy()
        if not self._ignore_nulls:
            there = np.ones(len(values), bool)
        ids, values = groups.ids[there], values[there]
        count = np.bincount(ids, minlength=groups.count).astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.bincount(ids, values, groups.count) / count
        squares = np.bincount(ids, (values - mean[ids]) ** 2, groups.count)
        return [pa.array(count), pa.array(np.where(count > 0, mean, 0.0)), pa.array(squares)]

    def merged(self, groups: Groups, states: list[Any]) -> list[Any]:
        """The same of several."""
        counts, means, squares = (state.to_numpy() for state in states)
        count = np.bincount(groups.ids, counts, groups.count)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.bincount(groups.ids, counts * means, groups.count) / count
        mean = np.where(count > 0, mean, 0.0)
        apart = squares + counts * (means - mean[groups.ids]) ** 2
        return [
            pa.array(count),
            pa.array(mean),
            pa.array(np.bincount(groups.ids, apart, groups.count)),
        ]

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        count, _, squares = (state.to_numpy() for state in states)
        enough = count > self._ddof
        with np.errstate(divide="ignore", invalid="ignore"):
            made = np.sqrt(squares / (count - self._ddof))
        return pa.array(made, mask=~enough | np.isnan(made))


class AsList(_Kernels):
    """The values of a column as a list.

    Args:
        on: the column.
        alias_name: of the result.
        ignore_nulls: leaves out NULLs.
    """

    _KIND = "list"

    def __init__(self, on: str, alias_name: str | None = None, ignore_nulls: bool = False):
        super().__init__(on, ignore_nulls, alias_name)

    def states(self, groups: Groups) -> list[Any]:
        """The values of each group of a block."""
        assert self._on is not None
        lists = groups.lists(groups.table.column(self._on))
        return [_without_nulls(lists) if self._ignore_nulls else lists]

    def merged(self, groups: Groups, states: list[Any]) -> list[Any]:
        """The values of several."""
        return [groups.joined(states[0])]


def _without_nulls(lists: Any) -> Any:
    values, lengths = lists.flatten(), lists.value_lengths().to_numpy()
    there = values.is_valid()
    ids = np.repeat(np.arange(len(lengths)), lengths)[there.to_numpy(zero_copy_only=False)]
    return _lists(values.filter(there), np.bincount(ids, minlength=len(lengths)))


def _distinct(lists: Any) -> Any:
    ids = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())
    table = pa.table([ids, lists.flatten()], names=["g", "x"])
    found = table.group_by(["g", "x"], use_threads=False).aggregate([])
    order = np.argsort(found.column("g").to_numpy(), kind="stable")
    found = found.take(pa.array(order))
    lengths = np.bincount(found.column("g").to_numpy(), minlength=len(lists))
    return _lists(found.column("x").combine_chunks(), lengths)


class Unique(AsList):
    """The distinct values of a column as a list, in the order in which they first come.

    Args:
        on: the column.
        ignore_nulls: leaves out NULL.
        alias_name: of the result.
        encode_lists: has no effect.
    """

    _KIND = "unique"

    def __init__(
        self,
        on: str,
        ignore_nulls: bool = False,
        alias_name: str | None = None,
        encode_lists: Any = None,
    ):
        super().__init__(on, alias_name, ignore_nulls)

    def states(self, groups: Groups) -> list[Any]:
        """The distinct values of each group of a block."""
        return [_distinct(super().states(groups)[0])]

    def merged(self, groups: Groups, states: list[Any]) -> list[Any]:
        """The distinct values of several."""
        return [_distinct(groups.joined(states[0]))]


class CountDistinct(Unique):
    """How many distinct values a column has.

    Args:
        on: the column.
        ignore_nulls: leaves out NULL.
        alias_name: of the result.
    """

    _KIND = "count_distinct"

    def __init__(self, on: str, ignore_nulls: bool = True, alias_name: str | None = None):
        super().__init__(on, ignore_nulls, alias_name)

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        return pc.list_value_length(states[0])


class Quantile(AsList):
    """A quantile of a column, between two values by distance. All values of a group are kept until
    the end.

    Args:
        on: the column.
        q: from 0 to 1.
        ignore_nulls: False: NULL when one value is.
        alias_name: of the result.
    """

    _KIND = "quantile"

    def __init__(
        self, on: str, q: float = 0.5, ignore_nulls: bool = True, alias_name: str | None = None
    ):
        if not 0 <= q <= 1:
            raise ValueError(f"q={q}: want a number from 0 to 1")
        super().__init__(on, alias_name, ignore_nulls)
        self._quantiles = [q]

    def _of_groups(self, states: list[Any]) -> list[Any]:
        made: list[Any] = []
        for values in states[0].to_pylist():
            missing = not values or any(value is None for value in values)
            made.append(None if missing else np.quantile(values, self._quantiles).tolist())
        return made

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        return pa.array([one and one[0] for one in self._of_groups(states)], pa.float64())


class ApproximateQuantile(Quantile):
    """Quantiles of a column as a list. They are exact, and cost as much memory as Quantile's.

    Args:
        on: the column.
        quantiles: each from 0 to 1.
        quantile_precision: has no effect.
        alias_name: of the result.
    """

    _KIND = "approx_quantile"

    def __init__(
        self,
        on: str,
        quantiles: Sequence[float],
        quantile_precision: int = 800,
        alias_name: str | None = None,
    ):
        super().__init__(on, alias_name=alias_name)
        if not all(0 <= q <= 1 for q in quantiles):
            raise ValueError(f"quantiles={list(quantiles)}: want numbers from 0 to 1")
        self._quantiles = list(quantiles)

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        return pa.array(self._of_groups(states), pa.list_(pa.float64()))


class ValueCounter(AsList):
    """The distinct values of a column and how often each comes, as {"values": [...], "counts":
    [...]}, the most frequent first.

    Args:
        on: the column.
        alias_name: of the result.
    """

    _KIND = "value_counter"

    def __init__(self, on: str, alias_name: str | None = None):
        super().__init__(on, alias_name, ignore_nulls=True)

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        kind = states[0].type.value_type
        made = []
        for values in states[0].to_pylist():
            counted = pa.array(values, kind).value_counts().to_pylist()
            counted.sort(key=lambda one: -one["counts"])
            made.append({part: [one[part] for one in counted] for part in ("values", "counts")})
        return pa.array(
            made, pa.struct([("values", pa.list_(kind)), ("counts", pa.list_(pa.int64()))])
        )


class _Percentage(_Kernels):
    """A share of the rows, in percent."""

    _MERGES = ("sum", "sum")

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        part, whole = (state.to_numpy() for state in states)
        with np.errstate(divide="ignore", invalid="ignore"):
            made = 100.0 * part / whole
        return pa.array(made, mask=whole == 0)


class MissingValuePercentage(_Percentage):
    """How many of a column's values are NULL or NaN, in percent.

    Args:
        on: the column.
        alias_name: of the result.
    """

    _KIND = "missing_pct"

    def __init__(self, on: str, alias_name: str | None = None):
        super().__init__(on, True, alias_name)

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        missing = groups.table.column(self._on).is_null(nan_is_null=True)
        ones = pa.chunked_array([np.ones(groups.table.num_rows)])
        return [(missing.cast(pa.float64()), "sum"), (ones, "sum")]


class ZeroPercentage(_Percentage):
    """How many of a column's values are 0, in percent; of those that are not NULL with
    ignore_nulls.

    Args:
        on: the column.
        ignore_nulls: whether NULLs count as values.
        alias_name: of the result.
    """

    _KIND = "zero_pct"

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        column = self._column(groups)
        zero = pc.equal(column, pa.scalar(0, column.type)).fill_null(False)
        there = column.is_valid() if self._ignore_nulls else zero.is_valid()
        return [(zero.cast(pa.float64()), "sum"), (there.cast(pa.float64()), "sum")]
