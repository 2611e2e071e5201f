# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""PowerTransformer: columns of numbers made more like those of a normal distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from sheaf.data.preprocessors.utils import BuiltIn, array_of, numbers
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["PowerTransformer"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.power_transformer")
class PowerTransformer(BuiltIn):
    """The transformation of Yeo and Johnson, or of Box and Cox, with a given power.

    Args:
        columns: the columns.
        power: the power.
        method: "yeo-johnson", or "box-cox" of positive numbers.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        power: float,
        method: str = "yeo-johnson",
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        if method not in ("yeo-johnson", "box-cox"):
            raise ValueError(f"Method {method} is not supported: want 'yeo-johnson' or 'box-cox'")
        self.columns, self.power, self.method = columns, power, method
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _changed(self, table: Any) -> dict[str, Any]:
        change = _box_cox if self.method == "box-cox" else _yeo_johnson
        made = {}
        with np.errstate(divide="ignore", invalid="ignore"):
            for name, output in zip(self.columns, self.output_columns):
                made[output] = numbers(change(array_of(table.column(name)), self.power))
        return made


def _box_cox(x: Any, power: float) -> Any:
    return np.log(x) if power == 0 else (np.power(x, power) - 1) / power


def _yeo_johnson(x: Any, power: float) -> Any:
    """That of x + 1 for what is not negative; else that of 1 - x with the power mirrored at 1."""
    far = np.where(x < 0, 0, x) + 1
    near = 1 - np.where(x < 0, x, 0)
    return np.where(x < 0, -_box_cox(near, 2 - power), _box_cox(far, power))
