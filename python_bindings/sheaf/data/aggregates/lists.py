# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Aggregates whose states are the values of a group, or the distinct ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.aggregates.groups import Groups, lists_of, numbered_rows
from sheaf.data.aggregates.kernels import Kernels
from sheaf.data.aggregates.keys import comparable, key, without_nan


class AsList(Kernels):
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
        lists = groups.lists(self._listed(groups))
        return [_without_nulls(lists) if self._ignore_nulls else lists]

    def _listed(self, groups: Groups) -> Any:
        assert self._on is not None
        return groups.table.column(self._on)

    def merged(self, groups: Groups, states: list[Any]) -> list[Any]:
        """The values of several."""
        return [groups.joined(states[0])]


def _without_nulls(lists: Any) -> Any:
    values, lengths = lists.flatten(), lists.value_lengths().to_numpy()
    there = values.is_valid()
    ids = np.repeat(np.arange(len(lengths)), lengths)[there.to_numpy(zero_copy_only=False)]
    return lists_of(values.filter(there), np.bincount(ids, minlength=len(lengths)))


def _distinct(lists: Any) -> Any:
    return _counted(lists, pa.array(np.ones(len(lists.flatten()), np.int64)))[0]


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

    def _listed(self, groups: Groups) -> Any:
        return key(super()._listed(groups))

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

    def _listed(self, groups: Groups) -> Any:
        return self._floats(groups)

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
    """Quantiles of a column as a list, without NULL and NaN. They are exact, and cost as much
    memory as Quantile's.

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

    def _listed(self, groups: Groups) -> Any:
        return without_nan(super()._listed(groups))

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        return pa.array(self._of_groups(states), pa.list_(pa.float64()))


class ValueCounter(Unique):
    """The distinct values of a column and how often each comes, as {"values": [...], "counts":
    [...]}, the most frequent first.

    Args:
        on: the column.
        alias_name: of the result.
    """

    _KIND = "value_counter"

    def __init__(self, on: str, alias_name: str | None = None):
        super().__init__(on, True, alias_name)

    def states(self, groups: Groups) -> list[Any]:
        """The distinct values of each group of a block, and their counts."""
        lists = AsList.states(self, groups)[0]
        return _counted(lists, pa.array(np.ones(len(lists.flatten()), np.int64)))

    def merged(self, groups: Groups, states: list[Any]) -> list[Any]:
        """The same of several."""
        return _counted(groups.joined(states[0]), groups.joined(states[1]).flatten())

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        kind = states[0].type.value_type
        made = []
        for values, counts in zip(*(state.to_pylist() for state in states)):
            ranked = sorted(zip(values, counts), key=lambda one: -one[1])
            made.append(
                {"values": [one for one, _ in ranked], "counts": [count for _, count in ranked]}
            )
        return pa.array(
            made, pa.struct([("values", pa.list_(kind)), ("counts", pa.list_(pa.int64()))])
        )


class ApproximateTopK(ValueCounter):
    """The most frequent values of a column, as a list of {column: value, "count": n}. The counts
    are exact.

    Args:
        on: the column.
        k: how many at most.
        log_capacity: has no effect.
        alias_name: of the result.
        encode_lists: True is not in Sheaf.
    """

    _KIND = "approx_topk"

    def __init__(
        self,
        on: str,
        k: int,
        log_capacity: int = 15,
        alias_name: str | None = None,
        encode_lists: bool = False,
    ):
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k={k!r}: want a number of 1 or more")
        if encode_lists:
            raise NotImplementedError("ApproximateTopK: encode_lists: use Dataset.explode before")
        super().__init__(on, alias_name)
        self._most = k

    def results(self, states: list[Any]) -> Any:
        """The results of states."""
        assert self._on is not None
        kind = states[0].type.value_type
        made = [
            [
                {self._on: value, "count": count}
                for value, count in zip(one["values"][: self._most], one["counts"])
            ]
            for one in super().results(states).to_pylist()
        ]
        return pa.array(made, pa.list_(pa.struct([(self._on, kind), ("count", pa.int64())])))


def _counted(lists: Any, counts: Any) -> list[Any]:
    """The distinct values of each list, in the order in which they first come, and the sums of
    their counts."""
    ids = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())
    values = lists.flatten()
    pairs, first = numbered_rows([pa.chunked_array([ids]), comparable(pa.chunked_array([values]))])
    order = np.argsort(ids[first], kind="stable")
    lengths = np.bincount(ids[first], minlength=len(lists))
    table = pa.table([pairs, counts], names=["p", "n"])
    sums = table.group_by("p", use_threads=False).aggregate([("n", "sum")]).sort_by("p")
    return [
        lists_of(values.take(pa.array(first[order])), lengths),
        lists_of(sums.column("n_sum").combine_chunks().take(pa.array(order)), lengths),
    ]
