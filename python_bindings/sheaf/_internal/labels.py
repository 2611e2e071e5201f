# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Labels of nodes and selectors of them, by their form: names as Kubernetes has them."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any

_WORD = r"[a-zA-Z0-9](?:[a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?"
_KEY = re.compile(rf"(?:(?=[^/]{{1,253}}/){_WORD}(?:\.{_WORD})*/)?{_WORD}")
_SELECTOR = re.compile(rf"!?{_WORD}|!?(?:in)?\({_WORD}(?:, ?{_WORD})*\)|")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} letters)"


def check_selector(option: str, selector: dict[Any, Any]) -> None:
    """Raises for a label or a text that is none; objects of sheaf.util pass, as In("a")."""
    given = f"{option}={_shown(selector)}"
    for key, value in selector.items():
        if not isinstance(key, str):
            raise TypeError(f"{given}: want labels that are str, got {_shown(key)}")
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"Invalid label key name {_shown(key)}: {given}: want letters, digits, and "
                " -, _ or . between them, 63 at most; before it may stand a domain and a /"
            )
        if value is None or isinstance(value, (int, float, bytes, list, tuple, dict)):
            raise TypeError(f"{given}: want words by label, got {_shown(value)}")
        if isinstance(value, str) and not _SELECTOR.fullmatch(value):
            raise ValueError(
                f"Invalid label selector value {_shown(value)}: {given}: want a word, "
                "'!word', 'in(a, b)' or '!in(a, b)'"
            )
