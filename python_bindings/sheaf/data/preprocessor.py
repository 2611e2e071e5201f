# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Preprocessor, which users' own derive from; deserialize() knows those that are ready, too."""

from __future__ import annotations

import sheaf.data.preprocessors  # noqa: F401 (they enter themselves)
from sheaf.data.preprocessors.base import (
    Preprocessor,
    PreprocessorNotFittedException,
    SerializablePreprocessorBase,
)

__all__ = ["Preprocessor", "PreprocessorNotFittedException", "SerializablePreprocessorBase"]
