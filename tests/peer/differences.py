# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Programs in which Sheaf answers otherwise than Ray and is meant to: why, and what it says. Anything
else that differs is a bug."""

from typing import NamedTuple


class Difference(NamedTuple):
    reason: str
    lines: list  # What Sheaf says.


KNOWN: dict[str, Difference] = {}
