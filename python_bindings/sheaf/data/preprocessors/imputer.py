# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""SimpleImputer: values in the place of missing ones."""

from __future__ import annotations

from numbers import Number
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.aggregate import AggregateFn, Mean
from sheaf.data.aggregates.groups import Groups
from sheaf.data.aggregates.keys import without_nan
from sheaf.data.preprocessors.utils import BuiltIn, ValueCounts
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["SimpleImputer"]

_STRATEGIES = ("mean", "most_frequent", "constant")


class _MeanOfValues(Mean):
    """The mean without NaN, which is a missing value here."""

    def _floats(self, groups: Groups) -> Any:
        return without_nan(super()._floats(groups))


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.simple_imputer")
class SimpleImputer(BuiltIn):
    """A value in the place of NULL and NaN, and a whole column of it where a batch lacks that.

    Args:
        columns: the columns.
        strategy: "mean", of the other values; "most_frequent"; or "constant", which is
            `fill_value`.
        fill_value: of "constant".
        output_columns: where the results go, one for each; the same columns when not given.
    """

    def __init__(
        self,
        columns: list[str],
        strategy: str = "mean",
        fill_value: str | Number | None = None,
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        if strategy not in _STRATEGIES:
            raise ValueError(f"Strategy {strategy} is not supported: want one of {_STRATEGIES}")
        if strategy == "constant":
            self._is_fittable = False
            if fill_value is None:
                raise ValueError('`fill_value` must be set when using "constant" strategy.')
        self.columns, self.strategy, self.fill_value = columns, strategy, fill_value
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _set_serializable_fields(self, fields: dict[str, Any], version: int) -> None:
        super()._set_serializable_fields(fields, version)
        self._is_fittable = self.strategy != "constant"

    def _aggregates(self) -> list[AggregateFn]:
        if self.strategy == "mean":
            return [_MeanOfValues(n, alias_name=f"mean_of_values({n})") for n in self.columns]
        return [ValueCounts(name, f"most_frequent({name})") for name in self.columns]

    def _learned(self, results: dict[str, Any]) -> dict[str, Any]:
        if self.strategy == "mean":
            return {f"mean({n})": found for n, found in zip(self.columns, results.values())}
        learned: dict[str, Any] = {}
        for name, counts in results.items():
            there = {value: count for value, count in (counts or {}).items() if value is not None}
            learned[name] = max(there, key=lambda value: there[value]) if there else None
        return learned

    def _check(self, table: Any) -> None:
        """A column that is not there is filled."""

    def _changed(self, table: Any) -> dict[str, Any]:
        made = {}
        for name, output in zip(self.columns, self.output_columns):
            value = (
                self.fill_value
                if self.strategy == "constant"
                else self.stats_[f"{self.strategy}({name})"]
            )
            if value is None:
                raise ValueError(
                    f"Column {name} has no fill value. Check the data used to fit the "
                    "SimpleImputer."
                )
            if name in table.column_names:
                made[output] = _filled(table.column(name), value)
            else:
                made[output] = pa.repeat(pa.scalar(value), table.num_rows)
        return made


def _filled(column: Any, value: Any) -> Any:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _filled(column.cast(kind.value_type), value).dictionary_encode()
    if isinstance(value, float) and (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        if not column.null_count and not pa.types.is_null(kind):
            return column
        column = column.cast(pa.float64())
    elif pa.types.is_null(kind):
        column = column.cast(pa.scalar(value).type)
    try:
        return pc.if_else(column.is_null(nan_is_null=True), pa.scalar(value, column.type), column)
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(f"fill value {value!r}: the column is {kind}: {error}") from error
