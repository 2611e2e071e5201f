# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What libraries ask about Ray's client mode, which Sheaf does not need."""

from __future__ import annotations

from typing import Any


def client_mode_hook(func: Any = None, *, local_only_kwargs: tuple[str, ...] = ()) -> Any:
    """Returns the function as it is: there is no second protocol."""
    return (lambda function: function) if func is None else func


def client_mode_should_convert() -> bool:
    """Returns False: there is no second protocol."""
    return False
