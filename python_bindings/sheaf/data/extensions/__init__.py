# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The types of tensors for Arrow and pandas, under the names of ray.data.extensions."""

from __future__ import annotations

from sheaf.data.arrow_types import (
    ArrowTensorArray,
    ArrowTensorType,
    ArrowTensorTypeV2,
    ArrowVariableShapedTensorArray,
    ArrowVariableShapedTensorType,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "ArrowTensorArray",
    "ArrowTensorType",
    "ArrowTensorTypeV2",
    "ArrowVariableShapedTensorArray",
    "ArrowVariableShapedTensorType",
]
_OF_PANDAS = ("TensorArray", "TensorArrayElement", "TensorDtype")  # Which is imported for them.


def __getattr__(name: str) -> Any:
    if name in _OF_PANDAS:
        from sheaf.data.extensions import tensor_array

        return getattr(tensor_array, name)
    raise AttributeError(f"sheaf.data.extensions has no '{name}'")
