# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Concatenator: columns of numbers as one column of vectors."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from sheaf.data.columns import column_of, column_to_numpy
from sheaf.data.preprocessors.utils import BuiltIn, Name
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["Concatenator"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.concatenator")
class Concatenator(BuiltIn):
    """Columns as one of vectors, behind the others; those that were put together go.

    Args:
        columns: the columns, in the order of the elements.
        output_column_name: of the vectors.
        dtype: of the elements; that which holds all when not given.
        raise_if_missing: a column that is not there is a ValueError; else a warning, and a
            ColumnNotFoundError.
        flatten: columns may hold vectors, whose elements are put behind each other.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        output_column_name: str = "concat_out",
        dtype: Any = None,
        raise_if_missing: bool = False,
        flatten: bool = False,
    ) -> None:
        super().__init__()
        self.columns, self.output_column_name, self.dtype = columns, output_column_name, dtype
        self.raise_if_missing, self.flatten = raise_if_missing, flatten

    def get_output_columns(self) -> list[str]:
        """Returns the column that it makes."""
        return [self.output_column_name]

    def _dropped(self) -> list[str]:
        return list(self.columns)

    def _check(self, table: Any) -> None:
        absent = set(self.columns) - set(table.column_names)
        if absent:
            said = f"Missing columns specified in '{self.columns}': {absent}"
            if self.raise_if_missing:
                raise ValueError(said)
            warnings.warn(said, stacklevel=2)
        super()._check(table)

    def _changed(self, table: Any) -> dict[str, Any]:
        parts = [column_to_numpy(table.column(name)) for name in self.columns]
        for name, part in zip(self.columns, parts):
            if not self.flatten and (part.ndim > 1 or part.dtype == object):
                raise ValueError(
                    f"Concatenator: column '{name}' is {table.schema.field(name).type}: want "
                    "numbers, or flatten=True for vectors"
                )
        if any(part.dtype == object for part in parts):  # Vectors that Arrow keeps as lists.
            values: Any = [
                np.concatenate([np.atleast_1d(part[row]).ravel() for part in parts])
                for row in range(table.num_rows)
            ]
            if self.dtype is not None:
                values = [one.astype(self.dtype) for one in values]
        else:
            flat = [part.reshape(len(part), math.prod(part.shape[1:])) for part in parts]
            values = np.concatenate(flat, axis=1)
            values = values if self.dtype is None else values.astype(self.dtype)
        return {self.output_column_name: column_of(self.output_column_name, values)}

    def _shown(self) -> dict[str, Any]:
        named = ("output_column_name", "columns", "dtype", "raise_if_missing", "flatten")
        usual = {"output_column_name": "concat_out", "dtype": None}
        given = {name: getattr(self, name) for name in named}
        return {k: Name(v) for k, v in given.items() if v != usual.get(k, False)}
