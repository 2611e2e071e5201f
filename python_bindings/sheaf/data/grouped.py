# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Groups of rows with equal keys: what Dataset.groupby gives."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

from sheaf.data import plan, transforms
from sheaf.data.compute import task_options, udf_of
from sheaf.data.exchanges.aggregation import Aggregate, MapGroups
from sheaf.data.methods.arguments import suggesting
from sheaf.data.user_code import ClassUdf, operator_name

Dataset = Any  # Which has this among its bases.


def aggregates_on(
    dataset: Dataset, kind: Any, on: Any, but: tuple[str, ...] = (), **options: Any
) -> list[Any]:
    """One aggregate for each column: those named, or all but some."""
    if on is None:
        on = [name for name in dataset.columns() or [] if name not in but]
    return [kind(name, **options) for name in ([on] if isinstance(on, str) else on)]


class GroupedData:
    """Groups of a dataset.

    Args:
        dataset: whose rows they are.
        keys: columns; none: one group of all rows.
        count: partitions; None: as many as the size asks for.
    """

    def __init__(self, dataset: Dataset, keys: tuple[str, ...], count: int | None) -> None:
        self._dataset, self._keys, self._count = dataset, keys, count

    def __repr__(self) -> str:
        return f"GroupedData(dataset={self._dataset!r}, key={list(self._keys)})"

    def aggregate(self, *aggs: Any) -> Dataset:
        """One row for each group.

        Args:
            *aggs: of sheaf.data.aggregate.

        Returns:
            The keys, and a column for each aggregate.

        Raises:
            ValueError: two of them, or one and a key, have the same name.
        """
        if not aggs:
            raise ValueError("aggregate: want one AggregateFn or more")
        for agg in aggs:
            if not callable(getattr(agg, "partial", None)):
                raise TypeError(f"aggregate: {agg!r}: want an AggregateFn of sheaf.data.aggregate")
        _check_names(self._keys, aggs)
        method = Aggregate(self._count, keys=self._keys, aggregates=tuple(aggs))
        if not self._keys:
            method.count = 1
        read = dict.fromkeys([*self._keys, *(name for agg in aggs for name in agg.columns())])
        source = self._dataset
        if read and all(agg.reads_only_columns() for agg in aggs):
            source = source.select_columns(list(read))  # Readers of files leave out the others.
        return source._with(plan.Exchange((source._plan,), "Aggregate", method))

    def _each(self, name: str, on: Any, **options: Any) -> Dataset:
        from sheaf.data import aggregate

        kind = getattr(aggregate, name)
        return self.aggregate(*aggregates_on(self._dataset, kind, on, self._keys, **options))

    def count(self) -> Dataset:
        """Returns the number of rows of each group, as "count()"."""
        from sheaf.data.aggregate import Count

        return self.aggregate(Count())

    def sum(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Sums, as "sum(column)".

        Args:
            on: the columns; None: all but the keys.
            ignore_nulls: False: the result is NULL where there is one.

        Returns:
            The dataset.
        """
        return self._each("Sum", on, ignore_nulls=ignore_nulls)

    def min(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Least values, as "min(column)".

        Args:
            on, ignore_nulls: as of sum.

        Returns:
            The dataset.
        """
        return self._each("Min", on, ignore_nulls=ignore_nulls)

    def max(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Greatest values, as "max(column)".

        Args:
            on, ignore_nulls: as of sum.

        Returns:
            The dataset.
        """
        return self._each("Max", on, ignore_nulls=ignore_nulls)

    def mean(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Dataset:
        """Means, as "mean(column)".

        Args:
            on, ignore_nulls: as of sum.

        Returns:
            The dataset.
        """
        return self._each("Mean", on, ignore_nulls=ignore_nulls)

    def std(
        self, on: str | list[str] | None = None, ddof: int = 1, ignore_nulls: bool = True
    ) -> Dataset:
        """Standard deviations, as "std(column)".

        Args:
            on, ignore_nulls: as of sum.
            ddof: what is subtracted from the number of rows.

        Returns:
            The dataset.
        """
        return self._each("Std", on, ddof=ddof, ignore_nulls=ignore_nulls)

    def map_groups(
        self,
        fn: Callable[[Any], Any],
        *,
        zero_copy_batch: bool = True,
        compute: Any = None,
        batch_format: str | None = "default",
        fn_args: Any = None,
        fn_kwargs: Any = None,
        fn_constructor_args: Any = None,
        fn_constructor_kwargs: Any = None,
        concurrency: Any = None,
        **options: Any,
    ) -> Dataset:
        """Each group through a function.

        Args:
            fn: takes a batch of all rows of a group, and returns one, or yields several.
            batch_format: as of map_batches; but by default a group is a DataFrame where pandas is
                installed, as in Ray 2.60 (else a dict of NumPy arrays). "numpy" is faster.
            zero_copy_batch, compute, fn_args, fn_kwargs, fn_constructor_args,
                fn_constructor_kwargs, concurrency, **options: as of map_batches.

        Returns:
            The dataset.
        """
        udf = udf_of("map_groups", fn, fn_constructor_args, fn_constructor_kwargs)
        settled = task_options("map_groups", udf, compute, concurrency, options)
        if batch_format == "default" and importlib.util.find_spec("pandas") is not None:
            batch_format = "pandas"
        transform = transforms.map_batches(
            udf,
            batch_format=batch_format,
            zero_copy_batch=zero_copy_batch,
            fn_args=fn_args or (),
            fn_kwargs=fn_kwargs,
            name=operator_name("MapGroups", udf),
        )
        udfs = (udf,) if isinstance(udf, ClassUdf) else ()
        count = self._count if self._keys else 1
        frames = ("views" if zero_copy_batch else "copies") if batch_format == "pandas" else ""
        method = MapGroups(count, keys=self._keys, transform=transform, frames=frames, udfs=udfs)
        node = plan.Exchange((self._dataset._plan,), "MapGroups", method, settled)
        return self._dataset._with(node)

    def with_column(self, column_name: str, expr: Any, **options: Any) -> Dataset:
        """A further column by an expression, which sees one group at a time.

        Args:
            column_name: its name.
            expr: of sheaf.data.expressions.
            **options: as of map_groups.

        Returns:
            The dataset.
        """
        adding = functools.partial(_with_column, column_name, expr)
        return self.map_groups(adding, batch_format="pyarrow", **options)


def _check_names(keys: tuple[str, ...], aggs: tuple[Any, ...]) -> None:
    names = set(keys)
    for agg in aggs:
        if agg.name in names:
            what = "a key has" if agg.name in keys else "another aggregate has"
            raise ValueError(
                f"aggregate: {type(agg).__name__} is named '{agg.name}', as {what}: want another "
                "alias_name"
            )
        names.add(agg.name)


def _with_column(name: str, expr: Any, table: Any) -> Any:
    return next(transforms.with_columns({name: expr})(iter([table])))


suggesting(GroupedData)
