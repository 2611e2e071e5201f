# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Dataset.summary: what the columns of a dataset hold, as a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from sheaf.data import aggregate
from sheaf.data.datatype import DataType
from sheaf.data.errors import MissingPackageError
from sheaf.data.schema import check_columns

Dataset = Any  # Which has this among its bases.
_MOST = 10  # Values that are shown of a column.
STATISTIC = "statistic"


@dataclasses.dataclass(frozen=True)
class DatasetSummary:
    """Statistics of the columns of a dataset.

    Attributes:
        dataset_schema: its columns and their types, a pa.Schema.
        columns: which of them are summed up.
        statistics: by column, values by name of statistic.
    """

    dataset_schema: Any
    columns: list[str]
    statistics: dict[str, dict[str, Any]]

    def to_pandas(self) -> Any:
        """Returns a DataFrame with one row for each statistic, by their names."""
        pandas = _pandas()
        names = sorted({name for found in self.statistics.values() for name in found})
        values: dict[str, Any] = {STATISTIC: names}
        for column, found in self.statistics.items():
            values[column] = [found.get(name) for name in names]
        return pandas.DataFrame(values)

    def get_column_stats(self, column: str) -> Any:
        """The statistics of one column.

        Args:
            column: its name.

        Returns:
            A DataFrame of their names and values.
        """
        check_columns([column], self.columns, "summary")
        found = sorted(self.statistics[column].items())
        return _pandas().DataFrame(
            {STATISTIC: [name for name, _ in found], "value": [value for _, value in found]}
        )


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise MissingPackageError("DatasetSummary", "pandas") from error
    return pandas


class Summaries:
    """The method of Dataset that sums it up."""

    def summary(
        self: Dataset,
        columns: list[str] | None = None,
        override_dtype_agg_mapping: Mapping[Any, Callable[[str], list[Any]]] | None = None,
    ) -> DatasetSummary:
        """What columns hold, in one pass: of numbers count, mean, least, greatest, deviation,
        median and shares of what is missing and 0; of times count, least, greatest and what is
        missing; of others count, what is missing and the most frequent values.

        Args:
            columns: which; None: all.
            override_dtype_agg_mapping: sheaf.data.datatype.DataType with what makes a column's
                aggregates of its name.

        Returns:
            The summary.
        """
        schema = self.schema()
        if schema is None:
            raise ValueError("summary: the dataset has no columns")
        names = list(schema.names) if columns is None else list(columns)
        check_columns(names, schema.names, "summary")
        of_types = {
            kind.to_arrow_dtype(): f for kind, f in (override_dtype_agg_mapping or {}).items()
        }
        kinds = {field.name: field.type for field in schema.base_schema}
        aggregates = {name: of_types.get(kinds[name], _usual(kinds[name]))(name) for name in names}
        found = self.aggregate(*(one for several in aggregates.values() for one in several)) or {}
        statistics = {
            name: {
                shown: value
                for one in several
                for shown, value in _shown(one, name, found.get(one.name)).items()
            }
            for name, several in aggregates.items()
        }
        return DatasetSummary(schema.base_schema, names, statistics)


def _usual(kind: Any) -> Callable[[str], list[Any]]:
    data_type = DataType(kind)
    if data_type.is_numerical_type() or pa.types.is_boolean(kind):
        return lambda name: [
            aggregate.Count(on=name, ignore_nulls=True),
            aggregate.Mean(name),
            aggregate.Min(name),
            aggregate.Max(name),
            aggregate.Std(name),
            aggregate.ApproximateQuantile(name, [0.5]),
            aggregate.MissingValuePercentage(name),
            aggregate.ZeroPercentage(name),
        ]
    if data_type.is_temporal_type():
        return lambda name: [
            aggregate.Count(on=name, ignore_nulls=True),
            aggregate.Min(name),
            aggregate.Max(name),
            aggregate.MissingValuePercentage(name),
        ]

    def counted(name: str) -> list[Any]:
        return [aggregate.Count(on=name, ignore_nulls=True), aggregate.MissingValuePercentage(name)]

    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return counted
    return lambda name: [*counted(name), aggregate.ApproximateTopK(name, _MOST)]


def _shown(one: Any, column: str, value: Any) -> dict[str, Any]:
    kind = one.name.removesuffix(f"({column})")
    if isinstance(value, list):
        return {f"{kind}[{place}]": each for place, each in enumerate(value)}
    return {kind: value}
