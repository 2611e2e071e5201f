# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Searchers of Ray that Sheaf does not have: their names say what to use instead."""

from __future__ import annotations

from typing import Any, NoReturn


class NotBuilt:
    """The base of names without a searcher: whoever calls one hears what to use."""

    instead = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise NotImplementedError(f"Sheaf has no {type(self).__name__}: use {self.instead}")
