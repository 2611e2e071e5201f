# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""cloudpickle, under the name that Ray programs use."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
from cloudpickle import (
    DEFAULT_PROTOCOL,
    CloudPickler,
    Pickler,
    dump,
    dumps,
    load,
    loads,
    register_pickle_by_value,
    unregister_pickle_by_value,
)

__all__ = [
    "DEFAULT_PROTOCOL",
    "CloudPickler",
    "Pickler",
    "cloudpickle",
    "dump",
    "dump_debug",
    "dumps",
    "dumps_debug",
    "load",
    "loads",
    "pickle",
    "register_pickle_by_value",
    "unregister_pickle_by_value",
]


def dump_debug(obj: Any, *args: Any, **kwargs: Any) -> None:
    """dump, whose errors name the value.

    Args:
        obj: the value.
        args: as for dump.
        kwargs: as for dump.

    Raises:
        TypeError: it cannot be pickled.
    """
    _explained(dump, obj, *args, **kwargs)


def dumps_debug(obj: Any, *args: Any, **kwargs: Any) -> bytes:
    """dumps, whose errors name the value.

    Args:
        obj: the value.
        args: as for dumps.
        kwargs: as for dumps.

    Raises:
        TypeError: it cannot be pickled.
    """
    data: bytes = _explained(dumps, obj, *args, **kwargs)
    return data


def _explained(call: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return call(obj, *args, **kwargs)
    except (TypeError, pickle.PicklingError) as error:
        raise TypeError(f"Could not serialize the object {obj!r}: {error}") from error
