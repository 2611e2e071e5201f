# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Aggregates over groups of rows: those that are ready, and AggregateFn and AggregateFnV2, which
take a user's functions."""

from __future__ import annotations

from sheaf.data.aggregates.functions import AggregateFn, AggregateFnV2, finish, merge, partial
from sheaf.data.aggregates.kernels import (
    AbsMax,
    Count,
    Max,
    Mean,
    Min,
    MissingValuePercentage,
    Std,
    Sum,
    ZeroPercentage,
)
from sheaf.data.aggregates.lists import (
    ApproximateQuantile,
    ApproximateTopK,
    AsList,
    CountDistinct,
    Quantile,
    Unique,
    ValueCounter,
)

VectorizedAggregateFnV2 = AggregateFnV2

__all__ = [
    "AbsMax",
    "AggregateFn",
    "AggregateFnV2",
    "ApproximateQuantile",
    "ApproximateTopK",
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
    "VectorizedAggregateFnV2",
    "ZeroPercentage",
    "finish",
    "merge",
    "partial",
]
