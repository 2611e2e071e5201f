# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that several methods of datasets have."""

from __future__ import annotations

from typing import Any


def columns_of(what: str, columns: Any) -> tuple[str, ...]:
    """Names of columns.

    Raises:
        TypeError: they are no strings.
        ValueError: one comes twice.
    """
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{what}: {name!r}: want names of columns, as strings")
    if len(set(names)) < len(names):
        raise ValueError(f"{what}: {list(names)}: a column comes twice")
    return names


def count_of(what: str, count: int | None, name: str = "num_blocks") -> int | None:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise ValueError(f"{what}: {name}={count!r}: want a number of 1 or more")
    return count


def seed_of(seed: Any) -> int | None:
    return getattr(seed, "seed", seed)
