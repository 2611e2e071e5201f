# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""FeatureHasher: columns of numbers added up by hashes of their names."""

from __future__ import annotations

from typing import Any

import numpy as np

from sheaf.data.columns import column_of, column_to_numpy
from sheaf.data.preprocessors.utils import BuiltIn, simple_hash
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["FeatureHasher"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.feature_hasher")
class FeatureHasher(BuiltIn):
    """Vectors in which each column adds to the element that the hash of its name says.

    Args:
        columns: the columns.
        num_features: how long the vectors are.
        output_column: where they go.
    """

    _is_fittable = False

    def __init__(self, columns: list[str], num_features: int, output_column: str) -> None:
        super().__init__()
        if num_features < 1:
            raise ValueError(f"num_features={num_features}: want 1 or more")
        self.columns, self.num_features = columns, num_features
        self.output_column = output_column

    def get_output_columns(self) -> list[str]:
        """Returns the column that it makes."""
        return [self.output_column]

    def _changed(self, table: Any) -> dict[str, Any]:
        parts = [column_to_numpy(table.column(name)) for name in self.columns]
        for name, part in zip(self.columns, parts):
            if part.dtype.kind not in "biuf":
                raise ValueError(
                    f"FeatureHasher: column '{name}' is {table.schema.field(name).type}: want "
                    "numbers"
                )
        whole = all(part.dtype.kind in "bi" for part in parts)
        made = np.zeros((table.num_rows, self.num_features), np.int64 if whole else np.float64)
        for name, part in zip(self.columns, parts):
            made[:, simple_hash(name, self.num_features)] += part
        return {self.output_column: column_of(self.output_column, made)}
