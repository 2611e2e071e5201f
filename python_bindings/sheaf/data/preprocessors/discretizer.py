# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Discretizers: numbers as those of the bins that they fall into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sheaf.data.aggregate import AggregateFn, Max, Min
from sheaf.data.preprocessors.encoder import categorical_array
from sheaf.data.preprocessors.utils import BuiltIn, array_of
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["CustomKBinsDiscretizer", "UniformKBinsDiscretizer"]


class _Discretizer(BuiltIn):
    """Numbers from 0 for bins; NULL outside of all.

    Args:
        columns: the columns.
        bins: edges, or how many bins; for all columns, or by name of column.
        right: bins hold their upper edge; False: their lower one.
        include_lowest: the first bin holds both.
        duplicates: "raise" a ValueError when two edges are equal, or "drop" one.
        dtypes: names of columns with a pandas.CategoricalDtype, whose categories bins are named by.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    def __init__(
        self,
        columns: list[str],
        bins: Any,
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: dict[str, Any] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        if duplicates not in ("raise", "drop"):
            raise ValueError(f"duplicates={duplicates!r}: want 'raise' or 'drop'")
        self.columns, self.bins, self.right = columns, bins, right
        self.include_lowest, self.duplicates, self.dtypes = include_lowest, duplicates, dtypes
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _check_bins(self) -> None:
        if isinstance(self.bins, dict):
            absent = [name for name in self.columns if name not in self.bins]
            if absent:
                raise ValueError(
                    "If `bins` is a dictionary, all elements of `columns` must be present in it: "
                    f"{absent} are not"
                )

    def _bins_of(self, name: str) -> Any:
        return self.bins[name] if isinstance(self.bins, dict) else self.bins

    def _edges(self, name: str) -> Any:
        raise NotImplementedError

    def _changed(self, table: Any) -> dict[str, Any]:
        made = {}
        for name, output in zip(self.columns, self.output_columns):
            values = array_of(table.column(name))
            edges = self._edges(name)
            if hasattr(edges, "get_indexer"):  # A pandas.IntervalIndex.
                codes, bins = edges.get_indexer(values).astype(np.int64), len(edges)
            else:
                codes, bins = self._codes(name, values, np.asarray(edges, np.float64))
            kind: Any = (self.dtypes or {}).get(name)
            if not hasattr(kind, "categories"):
                made[output] = pa.array(codes, mask=codes < 0)
                continue
            if len(kind.categories) != bins:
                raise ValueError(
                    f"{type(self).__name__}: column '{name}' has {bins} bins, and "
                    f"{len(kind.categories)} categories to name them by"
                )
            made[output] = categorical_array(codes, kind)
        return made

    def _codes(self, name: str, values: Any, edges: Any) -> tuple[Any, int]:
        if (np.diff(edges) < 0).any():
            raise ValueError(f"bins of column '{name}' must increase: {edges.tolist()}")
        once = np.unique(edges)
        if len(once) < len(edges) and self.duplicates == "raise":
            raise ValueError(
                f"bins of column '{name}': two edges are equal: {edges.tolist()}; duplicates="
                "'drop' drops them"
            )
        codes = np.searchsorted(once, values, "left" if self.right else "right")
        if self.include_lowest:
            codes[values == once[0]] = 1
        codes[np.isnan(values) | (codes == len(once))] = 0
        return codes.astype(np.int64) - 1, len(once) - 1


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.custom_kbins_discretizer")
class CustomKBinsDiscretizer(_Discretizer):
    """Numbers of bins with given edges; NULL outside of all.

    Args:
        columns: the columns.
        bins: rising edges, or a pandas.IntervalIndex; for all columns, or by name of column.
        right, include_lowest, duplicates, dtypes, output_columns: as of UniformKBinsDiscretizer.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        bins: Any,
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: dict[str, Any] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(
            columns,
            bins,
            right=right,
            include_lowest=include_lowest,
            duplicates=duplicates,
            dtypes=dtypes,
            output_columns=output_columns,
        )
        self._check_bins()

    def _edges(self, name: str) -> Any:
        return self._bins_of(name)


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.uniform_kbins_discretizer")
class UniformKBinsDiscretizer(_Discretizer):
    """Numbers of bins of equal width, from the least value of a column to the greatest; NULL
    outside of all. `stats_` has the edges by column.

    Args:
        columns: the columns.
        bins: how many; for all columns, or by name of column.
        right: bins hold their upper edge; False: their lower one.
        include_lowest: the first bin holds both.
        duplicates: "raise" a ValueError when two edges are equal, or "drop" one.
        dtypes: names of columns with a pandas.CategoricalDtype, whose categories bins are named by.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    def __init__(
        self,
        columns: list[str],
        bins: int | dict[str, int],
        *,
        right: bool = True,
        include_lowest: bool = False,
        duplicates: str = "raise",
        dtypes: dict[str, Any] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__(
            columns,
            bins,
            right=right,
            include_lowest=include_lowest,
            duplicates=duplicates,
            dtypes=dtypes,
            output_columns=output_columns,
        )

    def _aggregates(self) -> list[AggregateFn]:
        self._check_bins()
        for name in self.columns:
            count = self._bins_of(name)
            if isinstance(count, bool) or not isinstance(count, int):
                raise TypeError(f"`bins` must be an integer or a dict of integers, got {count}")
            if count < 1:
                raise ValueError(f"bins={count} of column '{name}': want 1 or more")
        return [kind(name) for kind in (Min, Max) for name in self.columns]

    def _learned(self, results: dict[str, Any]) -> dict[str, Any]:
        return {
            name: self._even(name, results[f"min({name})"], results[f"max({name})"])
            for name in self.columns
        }

    def _even(self, name: str, least: Any, most: Any) -> Any:
        """Edges as pandas.cut makes them: a little further out at the open end."""
        if least is None or most is None:
            raise ValueError(
                f"Column {name} has no values to bin. Check the data used to fit the discretizer."
            )
        low, high, count = float(least), float(most), self._bins_of(name)
        if np.isinf(low) or np.isinf(high):
            raise ValueError(
                f"Cannot specify integer `bins` when input data contains infinity: column {name}"
            )
        if low == high:
            low, high = low - (0.001 * abs(low) or 0.001), high + (0.001 * abs(high) or 0.001)
            return np.linspace(low, high, count + 1)
        edges = np.linspace(low, high, count + 1)
        beyond = (high - low) * 0.001
        edges[0 if self.right else -1] += -beyond if self.right else beyond
        return edges

    def _edges(self, name: str) -> Any:
        return self.stats_[name]
