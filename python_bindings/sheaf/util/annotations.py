# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Marks of interfaces in Ray programs; they change nothing."""

from __future__ import annotations

import enum
from typing import Any


class AnnotationType(enum.Enum):
    """Kinds of marks."""

    PUBLIC_API = "PublicAPI"
    DEVELOPER_API = "DeveloperAPI"
    DEPRECATED = "Deprecated"
    UNKNOWN = "Unknown"


class RayDeprecationWarning(DeprecationWarning):
    """Something will go; for `warnings.filterwarnings`. Sheaf does not warn so."""


def _mark(*args: Any, **kwargs: Any) -> Any:
    """Marks an interface, as @mark or as @mark(...); it changes nothing.

    Args:
        args: the function or class, where there is nothing else.
        kwargs: without effect.

    Returns:
        The function or class, or a decorator that returns it.
    """
    return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else lambda target: target


PublicAPI = DeveloperAPI = Deprecated = _mark
