# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Normalizer: rows divided by their length."""

from __future__ import annotations

from typing import Any

import numpy as np

from sheaf.data.preprocessors.utils import BuiltIn, array_of, numbers
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["Normalizer"]

_NORMS = {
    "l1": lambda rows: np.nansum(np.abs(rows), axis=0),
    "l2": lambda rows: np.sqrt(np.nansum(rows * rows, axis=0)),
    "max": lambda rows: np.fmax.reduce(np.abs(rows), axis=0),
}


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.normalizer")
class Normalizer(BuiltIn):
    """Each row divided by its length, over some columns; a missing value does not count.

    Args:
        columns: the columns.
        norm: what length is: "l1" the sum of absolute values, "l2" the root of the sum of squares,
            "max" the greatest absolute value.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    _is_fittable = False

    def __init__(
        self, columns: list[str], norm: str = "l2", *, output_columns: list[str] | None = None
    ) -> None:
        super().__init__()
        if norm not in _NORMS:
            raise ValueError(f"Norm {norm} is not supported: want one of {list(_NORMS)}")
        self.columns, self.norm = columns, norm
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _changed(self, table: Any) -> dict[str, Any]:
        rows = np.stack([array_of(table.column(name)) for name in self.columns])
        with np.errstate(divide="ignore", invalid="ignore"):
            rows = rows / (_NORMS[self.norm](rows) if rows.size else 1.0)
        return {name: numbers(row) for name, row in zip(self.output_columns, rows)}
