# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Scalers: columns of numbers, each moved and divided by what was learned of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.aggregate import AbsMax, AggregateFn, ApproximateQuantile, Max, Mean, Min, Std
from sheaf.data.preprocessors.utils import BuiltIn, floats
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["MaxAbsScaler", "MinMaxScaler", "RobustScaler", "StandardScaler"]

_LEAST = 1e-8  # Columns that vary less count as constant.


class _Scaler(BuiltIn):
    """(x - shift) / scale.

    Args:
        columns: those that are scaled.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    def __init__(self, columns: list[str], output_columns: list[str] | None = None) -> None:
        super().__init__()
        self.columns = columns
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _shift_and_scale(self, column: str) -> tuple[float, float] | None:
        """Returns both; None: nothing was learned of the column, and all results are NULL."""
        raise NotImplementedError

    def _changed(self, table: Any) -> dict[str, Any]:
        made = {}
        for name, output in zip(self.columns, self.output_columns):
            column = floats(table.column(name))
            found = self._shift_and_scale(name)
            made[output] = pa.nulls(len(column), column.type) if found is None else column
            if found is not None:
                shift, scale = (pa.scalar(float(one), column.type) for one in found)
                made[output] = pc.divide(pc.subtract(column, shift), scale)
        return made


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.standard_scaler")
class StandardScaler(_Scaler):
    """Means become 0 and standard deviations, of all there is, 1; columns that do not vary 0.
    A column with a NaN has no mean, and all its results are NULL, as in Ray: impute it before.
    Arguments as of MinMaxScaler."""

    _FRAMES = False

    def _aggregates(self) -> list[AggregateFn]:
        return [*map(Mean, self.columns), *(Std(name, ddof=0) for name in self.columns)]

    def _shift_and_scale(self, column: str) -> tuple[float, float] | None:
        mean, std = self.stats_[f"mean({column})"], self.stats_[f"std({column})"]
        if mean is None or std is None or std != std:
            return None
        return mean, 1.0 if std < _LEAST else std


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.min_max_scaler")
class MinMaxScaler(_Scaler):
    """The least values become 0 and the greatest 1; columns that do not vary 0.

    Args:
        columns: those that are scaled.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    def _aggregates(self) -> list[AggregateFn]:
        return [kind(name) for kind in (Min, Max) for name in self.columns]

    def _shift_and_scale(self, column: str) -> tuple[float, float] | None:
        least, most = self.stats_[f"min({column})"], self.stats_[f"max({column})"]
        if least is None or most is None:
            return None
        return least, 1.0 if most - least < _LEAST else most - least


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.max_abs_scaler")
class MaxAbsScaler(_Scaler):
    """The greatest absolute values become 1; columns of 0 stay. NaN is passed over. Arguments as of
    MinMaxScaler."""

    def _aggregates(self) -> list[AggregateFn]:
        return [AbsMax(name) for name in self.columns]

    def _shift_and_scale(self, column: str) -> tuple[float, float] | None:
        most = self.stats_[f"abs_max({column})"]
        return None if most is None else (0.0, most or 1.0)


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.robust_scaler")
class RobustScaler(_Scaler):
    """Medians become 0 and the distance between two quantiles 1; columns where that is 0 become 0.
    Quantiles are exact, between two values by distance, and without NULL and NaN.

    Args:
        columns: those that are scaled.
        quantile_range: the lower and the upper quantile.
        output_columns: where the results go, one for each; the same columns when not given.
        quantile_precision: has no effect.
    """

    DEFAULT_QUANTILE_PRECISION = 800

    def __init__(
        self,
        columns: list[str],
        quantile_range: tuple[float, float] = (0.25, 0.75),
        output_columns: list[str] | None = None,
        quantile_precision: int = DEFAULT_QUANTILE_PRECISION,
    ) -> None:
        super().__init__(columns, output_columns)
        self.quantile_range, self.quantile_precision = quantile_range, quantile_precision

    def _aggregates(self) -> list[AggregateFn]:
        low, high = self.quantile_range
        return [ApproximateQuantile(name, [low, 0.5, high]) for name in self.columns]

    def _learned(self, results: dict[str, Any]) -> dict[str, Any]:
        learned = {}
        for name in self.columns:
            found = results[f"approx_quantile({name})"] or (None, None, None)
            for kind, value in zip(("low_quantile", "median", "high_quantile"), found):
                learned[f"{kind}({name})"] = value
        return learned

    def _shift_and_scale(self, column: str) -> tuple[float, float] | None:
        low, middle, high = (
            self.stats_[f"{kind}({column})"] for kind in ("low_quantile", "median", "high_quantile")
        )
        if low is None:
            return None
        return middle, (high - low) or float("inf")  # By which all that is divided is 0.

    def _shown(self) -> dict[str, Any]:
        shown = super()._shown()
        del shown["quantile_precision"]
        return shown
