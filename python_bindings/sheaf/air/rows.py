# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is reported, as a line of JSON, or without dicts inside it."""

from __future__ import annotations

import json
from typing import Any


def flatten(row: dict[str, Any], delimiter: str = "/") -> dict[str, Any]:
    """A row without dicts inside it: {"a": {"b": 1}} becomes {"a/b": 1}."""
    if not any(isinstance(value, dict) for value in row.values()):
        return row
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and value:
            for inner, one in flatten(value, delimiter).items():
                flat[f"{name}{delimiter}{inner}"] = one
        else:
            flat[name] = value
    return flat


def encode(row: dict[str, Any]) -> str:
    """One line of JSON; what JSON does not know as text, arrays as lists."""
    return json.dumps(
        row, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value)
    )
