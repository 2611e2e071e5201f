# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""References that were pickled outside of calls and values, where nobody sees who reads them: this
process keeps their objects until its session ends."""

from __future__ import annotations

import os
from typing import Any

from sheaf import _core
from sheaf.exceptions import ObjectLostError, OufOfBandObjectRefSerializationException

_SWITCH = "RAY_allow_out_of_band_object_ref_serialization"
_SPACE, _KEY = "sheaf.lent", "cluster"
_lent: set[Any] = set()
_cluster_mark: bytes | None = None


def _mark() -> bytes | None:
    """What tells this cluster from others: ids begin anew in each."""
    global _cluster_mark
    if _cluster_mark is None:
        _core.key_put(_SPACE, _KEY, os.urandom(16), False)  # The first one stays.
        _cluster_mark = _core.key_get(_SPACE, _KEY)
    return _cluster_mark


def reduce_reference(reference: Any) -> tuple[Any, tuple[bytes | None, bytes]]:
    """Returns how a pickle makes the reference again, in any process of the cluster.

    Raises:
        OufOfBandObjectRefSerializationException: the switch of that name forbids it.
    """
    if os.environ.get(_SWITCH, "1").lower() in ("0", "false"):
        raise OufOfBandObjectRefSerializationException(
            f"It is not allowed to serialize {reference!r} outside of arguments, results and put "
            f"values, where its object would be kept until this process ends: {_SWITCH} is 0"
        )
    travels = _core.lend(reference)
    _lent.add(reference)
    return borrow, (_mark(), travels)


def borrow(mark: bytes | None, travels: bytes) -> Any:
    """Returns the reference that was pickled.

    Raises:
        ObjectLostError: it is of another cluster, or of a session that has ended.
    """
    if mark != _mark():
        raise ObjectLostError(
            "a reference was unpickled that was pickled in another cluster, or in a session that "
            "has ended: pickle sheaf.get(ref) to keep a value"
        )
    return _core.borrow(travels)


def forget() -> None:
    """The session has ended, and its references with it."""
    global _cluster_mark
    _lent.clear()
    _cluster_mark = None
