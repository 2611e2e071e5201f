# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Numbers and names that libraries read from `ray._private.ray_constants`. What has no meaning here
has the value that it has there."""

from __future__ import annotations

import os

ID_SIZE = 28
DEFAULT_PORT = 6379
DEFAULT_DASHBOARD_PORT = 8265
DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES = 200 * 10**9
DEFAULT_OBJECT_STORE_MEMORY_PROPORTION = 0.3
OBJECT_STORE_MINIMUM_MEMORY_BYTES = 75 * 1024 * 1024
RAY_ADDRESS_ENVIRONMENT_VARIABLE = "RAY_ADDRESS"
LOGGER_FORMAT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"
LOGGER_LEVEL = "info"


def env_bool(key: str, default: bool) -> bool:
    """Returns whether an environment variable is "true" or "1".

    Args:
        key: its name.
        default: what is returned where it is not set.
    """
    value = os.environ.get(key)
    return default if value is None else value.lower() in ("true", "1")


def env_integer(key: str, default: int) -> int:
    """Returns the number in an environment variable.

    Args:
        key: its name.
        default: what is returned where it is not set, or is no number.
    """
    value = os.environ.get(key, "")
    return int(value) if value.isdigit() else default


def env_float(key: str, default: float) -> float:
    """Returns the number in an environment variable.

    Args:
        key: its name.
        default: what is returned where it is not set, or is no number.
    """
    try:
        return float(os.environ[key])
    except (KeyError, ValueError):
        return default
