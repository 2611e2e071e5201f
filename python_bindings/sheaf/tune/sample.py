# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where Ray had its domains of old: see sheaf.tune.search.sample."""

from __future__ import annotations

from sheaf.tune.search import sample as _sample


def __getattr__(name: str) -> object:
    return getattr(_sample, name)
