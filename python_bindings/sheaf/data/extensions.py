# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The Arrow types of tensors, under the names of ray.data.extensions."""

from __future__ import annotations

from sheaf.data.arrow_types import (
    ArrowTensorArray,
    ArrowTensorType,
    ArrowTensorTypeV2,
    ArrowVariableShapedTensorArray,
    ArrowVariableShapedTensorType,
)

__all__ = [
    "ArrowTensorArray",
    "ArrowTensorType",
    "ArrowTensorTypeV2",
    "ArrowVariableShapedTensorArray",
    "ArrowVariableShapedTensorType",
]
