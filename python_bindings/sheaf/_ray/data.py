# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Ray's data sets, which are not there yet: libraries that can do without import names from here.
All but those of modules exist, and raise NotImplementedError when they are used."""

from __future__ import annotations

from typing import Any

from sheaf._internal import absent


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"sheaf.data has no '{name}'")
    return absent.a_class(f"data.{name}", "read the data with a library of its own")
