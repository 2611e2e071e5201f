# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What groupby(...).aggregate and Dataset.aggregate compute.

Each aggregate has `partial` (rows of a block to one row of state per group), `merge` (states of
several blocks to one per group) and `finish` (states to results). State columns are its own; the
keys stand beside them. Without keys there is one group, also of no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.schema import check_columns

__all__ = ["AggregateFn", "Count", "Max", "Mean", "Min", "Std", "Sum"]


def _grouped(table: Any, keys: Sequence[str], wanted: Sequence[tuple[Any, str, Any, str]]) -> Any:
    """Aggregates of pyarrow by group: (column, function, options, name of the result)."""
    grouped = table.group_by(list(keys), use_threads=False)
    result = grouped.aggregate(
        [(column, function, options) for column, function, options, _ in wanted]
    )
    made = (
        result.column_names[len(keys) :]
        if result.column_names[: len(keys)] == list(keys)
        else result.column_names[: len(wanted)]
    )
    names = dict(zip(made, [name for *_, name in wanted]))
    return result.rename_columns([names.get(name, name) for name in result.column_names])


class _BuiltIn:
    """An aggregate that pyarrow computes.

    Attributes:
        name: of the result's column.
    """

    label = ""

    def __init__(self, on: str | None, ignore_nulls: bool = True, alias_name: str | None = None):
        self.on, self.ignore_nulls = on, ignore_nulls
        self.name = alias_name or f"{self.label}({on or ''})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.on!r})"

    def partial(self, table: Any, keys: Sequence[str]) -> Any:
        """One row of state per group of a block.

        Args:
            table: the rows.
            keys: columns of it.

        Returns:
            The keys and the state.
        """
        check_columns([] if self.on is None else [self.on], table.column_names, self.label)
        return self._state(table, keys)

    def _state(self, table: Any, keys: Sequence[str]) -> Any:
        raise NotImplementedError

    def _nulls(self) -> Any:
        return pc.ScalarAggregateOptions(skip_nulls=self.ignore_nulls, min_count=1)


class Count(_BuiltIn):
    """The number of rows, or of values that are not NULL.

    Args:
        on: a column; None: rows.
        ignore_nulls: counts only values; by default all rows.
        alias_name: of the result's column.
    """

    label = "count"

    def __init__(
        self, on: str | None = None, ignore_nulls: bool = False, alias_name: str | None = None
    ):
        super().__init__(on, ignore_nulls, alias_name)

    def _state(self, table: Any, keys: Sequence[str]) -> Any:
        if self.on is None or not self.ignore_nulls:
            ones = pa.array(np.ones(table.num_rows, np.int64))
        else:
            ones = table.column(self.on).is_valid().cast(pa.int64())
        rows = table.select(list(keys)).append_column("\0n", ones)
        return _grouped(rows, keys, [("\0n", "sum", _zero(), "n")])

    def merge(self, table: Any, keys: Sequence[str]) -> Any:
        """States of several blocks to one per group."""
        return _grouped(table, keys, [("n", "sum", _zero(), "n")])

    def finish(self, table: Any) -> Any:
        """States to results."""
        return _renamed(table, "n", self.name)


def _zero() -> Any:
    return pc.ScalarAggregateOptions(skip_nulls=True, min_count=0)


def _renamed(table: Any, old: str, new: str) -> Any:
    return table.rename_columns([new if name == old else name for name in table.column_names])


class _OneColumn(_BuiltIn):
    """One whose state is what it gives."""

    def _state(self, table: Any, keys: Sequence[str]) -> Any:
        return _grouped(table, keys, [(self.on, self.label, self._nulls(), "x")])

    def merge(self, table: Any, keys: Sequence[str]) -> Any:
        """States of several blocks to one per group."""
        return _grouped(table, keys, [("x", self.label, self._nulls(), "x")])

    def finish(self, table: Any) -> Any:
        """States to results."""
        return _renamed(table, "x", self.name)


class Sum(_OneColumn):
    """The sum of a column.

    Args:
        on: the column.
        ignore_nulls: False: NULL where there is a NULL.
        alias_name: of the result's column.
    """

    label = "sum"


class Min(_OneColumn):
    """The least value of a column.

    Args:
        on, ignore_nulls, alias_name: as of Sum.
    """

    label = "min"


class Max(_OneColumn):
    """The greatest value of a column.

    Args:
        on, ignore_nulls, alias_name: as of Sum.
    """

    label = "max"


class Mean(_BuiltIn):
    """The mean of a column.

    Args:
        on, ignore_nulls, alias_name: as of Sum.
    """

    label = "mean"

    def _state(self, table: Any, keys: Sequence[str]) -> Any:
        return _grouped(
            table, keys, [(self.on, "sum", self._nulls(), "x"), (self.on, "count", None, "n")]
        )

    def merge(self, table: Any, keys: Sequence[str]) -> Any:
        """States of several blocks to one per group."""
        return _grouped(table, keys, [("x", "sum", self._nulls(), "x"), ("n", "sum", _zero(), "n")])

    def finish(self, table: Any) -> Any:
        """States to results."""
        mean = pc.divide(table.column("x").cast(pa.float64()), table.column("n").cast(pa.float64()))
        return table.drop_columns(["x", "n"]).append_column(self.name, mean)


class Std(_BuiltIn):
    """The standard deviation of a column.

    Args:
        on, ignore_nulls, alias_name: as of Sum.
        ddof: what is subtracted from the number of rows.
    """

    label = "std"

    def __init__(
        self, on: str, ddof: int = 1, ignore_nulls: bool = True, alias_name: str | None = None
    ):
        super().__init__(on, ignore_nulls, alias_name)
        self.ddof = ddof

    def _state(self, table: Any, keys: Sequence[str]) -> Any:
        nulls = pc.VarianceOptions(ddof=0, skip_nulls=self.ignore_nulls, min_count=1)
        wanted = [
            (self.on, "mean", self._nulls(), "m"),
            (self.on, "variance", nulls, "v"),
            (self.on, "count", None, "n"),
        ]
        return _grouped(table, keys, wanted)

    def merge(self, table: Any, keys: Sequence[str]) -> Any:
        """States of several blocks to one per group: Chan's formula, about the mean of all."""
        count = table.column("n").cast(pa.float64())
        rows = table.append_column("s", pc.multiply(table.column("m"), count))
        sums = _grouped(rows, keys, [("s", "sum", self._nulls(), "s"), ("n", "sum", _zero(), "n")])
        # The mean of all is not known beside each state; sums of squares about a common shift are.
        shift = pc.mean(table.column("m")).as_py() or 0.0
        away = pc.subtract(table.column("m"), shift)
        square = pc.multiply(pc.add(table.column("v"), pc.multiply(away, away)), count)
        squares = _grouped(
            table.append_column("q", square), keys, [("q", "sum", self._nulls(), "q")]
        )
        total = sums.column("n").cast(pa.float64())
        mean = pc.divide(sums.column("s"), total)
        away = pc.subtract(mean, shift)
        variance = pc.subtract(pc.divide(squares.column("q"), total), pc.multiply(away, away))
        variance = pc.if_else(pc.less(variance, 0.0), 0.0, variance)
        out = sums.select(list(keys)).append_column("m", mean).append_column("v", variance)
        return out.append_column("n", sums.column("n"))

    def finish(self, table: Any) -> Any:
        """States to results; NULL where there are too few rows."""
        count = table.column("n").cast(pa.float64())
        left = pc.subtract(count, float(self.ddof))
        few = pc.less_equal(left, 0.0)
        variance = pc.divide(pc.multiply(table.column("v"), count), pc.if_else(few, 1.0, left))
        std = pc.if_else(few, pa.scalar(None, pa.float64()), pc.sqrt(variance))
        return table.drop_columns(["m", "v", "n"]).append_column(self.name, std)


class AggregateFn:
    """An aggregate of the user's own.

    Args:
        init: takes the key, gives the first state.
        merge: takes two states, gives one.
        accumulate_row: takes a state and a row, gives the state.
        accumulate_block: or all rows of a group at once, as a pyarrow.Table.
        finalize: takes a state, gives the result.
        name: of the result's column.
    """

    def __init__(
        self,
        init: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
        accumulate_row: Callable[[Any, Any], Any] | None = None,
        accumulate_block: Callable[[Any, Any], Any] | None = None,
        finalize: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ):
        if (accumulate_row is None) == (accumulate_block is None):
            raise ValueError("AggregateFn: want either accumulate_row or accumulate_block")
        if name is None:
            raise ValueError("AggregateFn: want a name")
        self._init, self._merge, self._row = init, merge, accumulate_row
        self._block, self._finalize, self.name = accumulate_block, finalize, name

    def partial(self, table: Any, keys: Sequence[str]) -> Any:
        """One row of state per group of a block.

        Args:
            table: the rows.
            keys: columns of it.

        Returns:
            The keys and the state.
        """
        return self._of_groups(table, keys, self._accumulate)

    def _accumulate(self, key: Any, group: Any) -> Any:
        from sheaf.data.block import table_to_rows

        state = self._init(key)
        if self._block is not None:
            return self._block(state, group)
        assert self._row is not None
        for row in table_to_rows(group):
            state = self._row(state, row)
        return state

    def merge(self, table: Any, keys: Sequence[str]) -> Any:
        """States of several blocks to one per group."""

        def merged(key: Any, group: Any) -> Any:
            from sheaf.data.columns import values_of

            states = values_of(group.column("state"))
            total = states[0]
            for state in states[1:]:
                total = self._merge(total, state)
            return total

        return self._of_groups(table, keys, merged)

    def _of_groups(self, table: Any, keys: Sequence[str], make: Any) -> Any:
        from sheaf.data.aggregation import groups_of
        from sheaf.data.arrow_types import objects_array

        groups = list(groups_of(table, keys)) if table.num_rows else ([] if keys else [table])
        heads = (
            pa.concat_tables([group.select(list(keys)).slice(0, 1) for group in groups])
            if groups
            else table.select(list(keys)).slice(0, 0)
        )
        states = []
        for group in groups:
            values = [group.column(key)[0].as_py() for key in keys]
            states.append(make(values[0] if len(values) == 1 else tuple(values) or None, group))
        column = objects_array(states)
        return heads.append_column("state", column) if keys else pa.table({"state": column})

    def finish(self, table: Any) -> Any:
        """States to results."""
        from sheaf.data.columns import column_of, values_of

        results = values_of(table.column("state"))
        if self._finalize is not None:
            results = [self._finalize(state) for state in results]
        return table.drop_columns(["state"]).append_column(self.name, column_of(self.name, results))
