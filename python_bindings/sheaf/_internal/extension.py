# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Loads sheaf._core. nanobind runs some Python then and drops what that raises, so a Ctrl-C that
came since the library was opened, which takes some milliseconds, would be lost: it is held back,
and comes when the module is there.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # What `signal` adds to it takes a millisecond to import.
import sys

_came: list[int] = []


def _load() -> None:
    if "t" in sys.abiflags:
        raise ImportError(
            "Sheaf does not support free-threaded Python "
            f"({sys.executable}): its stable ABI has none; use the ordinary build of this version"
        )
    usual = _signal.getsignal(_signal.SIGINT)
    held = callable(usual)
    if held:
        try:
            _signal.signal(_signal.SIGINT, lambda number, frame: _came.append(number))
        except ValueError:  # Handlers run on the main thread, which this is not.
            held = False
    try:
        from sheaf import _core  # noqa: F401
    finally:
        if held:
            _signal.signal(_signal.SIGINT, usual)
    if _came:
        _came.clear()
        _signal.raise_signal(_signal.SIGINT)


_load()
