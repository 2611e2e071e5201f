# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What makes one value of a dataset: sums, means, the distinct values of a column."""

from __future__ import annotations

from typing import Any

from sheaf.data import plan
from sheaf.data.exchanges.aggregation import Aggregate
from sheaf.data.grouped import aggregates_on

Dataset = Any  # Which has this among its bases.


class Reductions:
    """The aggregating methods of Dataset."""

    def aggregate(self: Dataset, *aggs: Any) -> Any:
        """All rows as one group.

        Args:
            *aggs: of sheaf.data.aggregate.

        Returns:
            The results by name; None: the dataset has no rows.
        """
        rows = self.groupby(None).aggregate(*aggs).take_all()
        return rows[0] if rows else None

    def _one(self: Dataset, name: str, on: Any, **options: Any) -> Any:
        from sheaf.data import aggregate

        aggs = aggregates_on(self, getattr(aggregate, name), on, **options)
        result = self.aggregate(*aggs) if aggs else None
        if result is None:
            return None
        several = not isinstance(on, str) and len(result) > 1
        return result if several else next(iter(result.values()))

    def sum(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The sum of a column.

        Args:
            on: the column; several, or None for all, give a dict.
            ignore_nulls: False: the result is None where there is a NULL.

        Returns:
            It; None: there are no rows.
        """
        return self._one("Sum", on, ignore_nulls=ignore_nulls)

    def min(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The least value of a column.

        Args:
            on, ignore_nulls: as of sum.

        Returns:
            It; None: there are no rows.
        """
        return self._one("Min", on, ignore_nulls=ignore_nulls)

    def max(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The greatest value of a column.

        Args:
            on, ignore_nulls: as of sum.

        Returns:
            It; None: there are no rows.
        """
        return self._one("Max", on, ignore_nulls=ignore_nulls)

    def mean(self, on: str | list[str] | None = None, ignore_nulls: bool = True) -> Any:
        """The mean of a column.

        Args:
            on, ignore_nulls: as of sum.

        Returns:
            It; None: there are no rows.
        """
        return self._one("Mean", on, ignore_nulls=ignore_nulls)

    def std(
        self, on: str | list[str] | None = None, ddof: int = 1, ignore_nulls: bool = True
    ) -> Any:
        """The standard deviation of a column.

        Args:
            on, ignore_nulls: as of sum.
            ddof: what is subtracted from the number of rows.

        Returns:
            It; None: there are no rows.
        """
        return self._one("Std", on, ddof=ddof, ignore_nulls=ignore_nulls)

    def unique(self: Dataset, column: str, ignore_nulls: bool = False) -> list[Any]:
        """The distinct values of a column, in their order where they have one.

        Args:
            column: its name.
            ignore_nulls: leaves out None.

        Returns:
            The values.
        """
        known = plan.known_schema(self._plan)
        if known is not None:
            from sheaf.data.schema import check_columns

            check_columns([column], known.names, "unique")
        node = plan.Exchange((self._plan,), "Unique", Aggregate(keys=(column,)))
        values = [row[column] for row in self._with(node).take_all()]
        return [value for value in values if not (ignore_nulls and value is None)]
