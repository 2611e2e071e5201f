# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What an aggregate is: three steps that run in different processes. `partial` makes one row of
states per group of a block, `merge` joins such rows, `finish` makes results of states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from sheaf.data import arrow_types
from sheaf.data.aggregates.groups import Groups
from sheaf.data.block import table_to_rows
from sheaf.data.columns import column_of, values_of
from sheaf.data.errors import BatchError
from sheaf.data.schema import check_columns


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

    def reads_only_columns(self) -> bool:
        """Returns whether it reads the columns of `columns` alone."""
        return False

    def states(self, groups: Groups) -> list[Any]:
        """The states of each group of a block.

        Args:
            groups: of the block.

        Returns:
            Columns, one value per group.
        """
        made = []
        keys = groups.keys.to_pylist() or [{}] * groups.count
        for number in range(groups.count):
            values = list(keys[number].values())
            state = self._init(values[0] if len(values) == 1 else tuple(values) or None)
            made.append(self._accumulated(state, groups.rows_of(number)))
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
