# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Aggregates whose states are numbers: sums, means, the least and the greatest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.aggregates.functions import AggregateFn
from sheaf.data.aggregates.groups import Groups
from sheaf.data.aggregates.keys import comparable, to_floats
from sheaf.data.errors import BatchError


class Kernels(AggregateFn):
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

    def reads_only_columns(self) -> bool:
        """Returns True."""
        return True

    def get_target_column(self) -> str | None:
        """Returns the column that is aggregated, or None."""
        return self._on

    def _column(self, groups: Groups) -> Any:
        if self._on is None:
            raise BatchError(f"{self.name}: say which column, on='...'")
        return comparable(groups.table.column(self._on))

    def _numbers(self, groups: Groups) -> Any:
        """The column; flags are 0 and 1."""
        column = self._column(groups)
        return column.cast(pa.int64()) if pa.types.is_boolean(column.type) else column

    def _floats(self, groups: Groups) -> Any:
        """The column as float64, of integers beyond 2**53 the nearest ones."""
        column = self._numbers(groups)
        if not (pa.types.is_null(column.type) or pa.types.is_floating(column.type)):
            if not (pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
                raise pa.ArrowTypeError(f"{column.type} is no number")
        return to_floats(column)

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


class Count(Kernels):
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


class Sum(Kernels):
    """The sum of a column; NULL of no values. Arguments as of Count."""

    _KIND = "sum"

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        return [(self._numbers(groups), "sum")]


class Min(Kernels):
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
    """The greatest absolute value of a column; of integers it is unsigned. Arguments as of Min."""

    _KIND = "abs_max"

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        column = self._numbers(groups)
        if not pa.types.is_signed_integer(column.type):
            return [(pc.abs(column), "max")]
        made = pc.abs(column.cast(pa.int64()))  # -2**63 stays, whose bits are those of 2**63.
        return [(pa.chunked_array([c.view(pa.uint64()) for c in made.chunks], pa.uint64()), "max")]


class Mean(Kernels):
    """The mean of a column; NULL of no values. Arguments as of Count."""

    _KIND = "mean"
    _MERGES = ("sum", "sum")

    def _parts(self, groups: Groups) -> list[tuple[Any, str]]:
        column = self._floats(groups)
        there = column.is_valid().cast(pa.float64())
        return [(column, "sum"), (there, "sum")]

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        total, count = states
        return pc.if_else(pc.equal(count, 0.0), None, pc.divide(total, count))


class Std(Kernels):
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
        """Number, mean, sum of squared distances from it, and how many NULLs, of each group."""
        column = self._floats(groups)
        there = column.is_valid().to_numpy()
        ids, values = groups.ids[there], column.to_numpy()[there]
        count = np.bincount(ids, minlength=groups.count).astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.bincount(ids, values, groups.count) / count
            squares = np.bincount(ids, (values - mean[ids]) ** 2, groups.count)
        nulls = np.bincount(groups.ids[~there], minlength=groups.count).astype(float)
        mean = np.where(count > 0, mean, 0.0)
        return [pa.array(count), pa.array(mean), pa.array(squares), pa.array(nulls)]

    def merged(self, groups: Groups, states: list[Any]) -> list[Any]:
        """The same of several."""
        counts, means, squares, nulls = (state.to_numpy() for state in states)
        count = np.bincount(groups.ids, counts, groups.count)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.bincount(groups.ids, counts * means, groups.count) / count
            mean = np.where(count > 0, mean, 0.0)
            apart = squares + counts * (means - mean[groups.ids]) ** 2
        sums = [np.bincount(groups.ids, of, groups.count) for of in (apart, nulls)]
        return [pa.array(count), pa.array(mean), *map(pa.array, sums)]

    def results(self, states: list[Any]) -> Any:
        """The results of states: NaN is a value, and so is a result that is NaN."""
        count, _, squares, nulls = (state.to_numpy() for state in states)
        with np.errstate(divide="ignore", invalid="ignore"):
            made = np.sqrt(squares / (count - self._ddof))
        made[count <= self._ddof] = np.nan  # Too few values have none, as in NumPy.
        missing = (count == 0) if self._ignore_nulls else (count == 0) | (nulls > 0)
        return pa.array(made, mask=missing)


class _Percentage(Kernels):
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
        column = self._numbers(groups)
        zero = pc.equal(column, pa.scalar(0, column.type)).fill_null(False)
        there = column.is_valid() if self._ignore_nulls else zero.is_valid()
        return [(zero.cast(pa.float64()), "sum"), (there.cast(pa.float64()), "sum")]
