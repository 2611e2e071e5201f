# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""References that were pickled outside of calls and values, where nobody sees who reads them: this
process keeps their objects until its session ends."""

from __future__ import annotations

import os
from typing import Any

from sheaf import _core
from sheaf.exceptions import OufOfBandObjectRefSerializationException

_SWITCH = "RAY_allow_out_of_band_object_ref_serialization"
_lent: set[Any] = set()


def reduce_reference(reference: Any) -> tuple[Any, tuple[bytes]]:
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
    return _core.borrow, (travels,)


def forget() -> None:
    """The session has ended, and its references with it."""
    _lent.clear()
