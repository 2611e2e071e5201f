# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Saying things once."""

from __future__ import annotations

import time

_PERIOD_S = 60.0
_said: set[str] = set()
_disabled = _periodic = False
_last = 0.0


def log_once(key: str) -> bool:
    """Tells whether something is to be said: `if log_once("slow"): logger.warning(...)`.

    Args:
        key: names it.

    Returns:
        Whether this is the first call with this key in this process; after enable_periodic_logging,
        the first within a minute.
    """
    global _last
    if _disabled:
        return False
    if key not in _said:
        _said.add(key)
        _last = time.monotonic()
        return True
    if _periodic and time.monotonic() - _last > _PERIOD_S:
        _said.clear()
        _last = time.monotonic()
    return False


def reset_log_once(key: str | None = None) -> None:
    """Makes log_once of this process forget what it has seen.

    Args:
        key: what it forgets; None: everything.
    """
    if key is None:
        _said.clear()
    else:
        _said.discard(key)


def disable_log_once_globally() -> None:
    """From now on log_once returns False in this process."""
    global _disabled
    _disabled = True


def enable_periodic_logging() -> None:
    """From now on log_once of this process forgets once a minute what it has seen."""
    global _periodic
    _periodic = True
