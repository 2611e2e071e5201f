# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What trials run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sheaf.tune.trainable.trainable import Trainable
    from sheaf.tune.trainable.util import with_parameters, with_resources

__all__ = ["Trainable", "with_parameters", "with_resources"]

_WHERE = {"Trainable": "trainable", "with_parameters": "util", "with_resources": "util"}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"sheaf.tune.trainable.{_WHERE[name]}"), name)
    raise AttributeError(f"sheaf.tune.trainable has no '{name}'")
