# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Names of classes in what Preprocessor.serialize() gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sheaf.data.preprocessors.base import (
    CLASSES,
    SerializablePreprocessorBase,
    UnknownPreprocessorError,
)

__all__ = ["SerializablePreprocessor", "UnknownPreprocessorError"]

_Kind = TypeVar("_Kind", bound=type)


def SerializablePreprocessor(version: int, identifier: str) -> Callable[[_Kind], _Kind]:  # noqa: N802
    """Enters a class, so that deserialize finds it.

    Args:
        version: of its fields.
        identifier: its name there, which stays when the class is renamed.

    Returns:
        The decorator.
    """

    def enter(kind: _Kind) -> _Kind:
        if not issubclass(kind, SerializablePreprocessorBase):
            raise TypeError(f"{kind.__name__} does not derive from SerializablePreprocessorBase")
        CLASSES[identifier] = (kind, version)
        return kind

    return enter
