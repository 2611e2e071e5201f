# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Files that users write fields into, as YAML or JSON."""

from __future__ import annotations

import json
from typing import Any


def read(path: str) -> dict[str, Any]:
    """The fields in a file.

    Args:
        path: of the file. YAML takes PyYAML, JSON nothing.

    Raises:
        OSError: it cannot be read.
        ValueError: it is neither, or no object.
    """
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        fields = json.loads(text)
    except ValueError:
        try:
            import yaml  # type: ignore[import-untyped]
        except ImportError:
            raise ValueError(f"{path} is no JSON; for YAML, install PyYAML") from None
        try:
            fields = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is neither JSON nor YAML: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"{path}: want an object of fields, not {text[:80]!r}")
    return fields
