# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Errors under Ray's names. sheaf.data.errors has the rest."""

from __future__ import annotations

from sheaf.data.errors import DataError, UserCodeError

__all__ = ["ExecutionTimeoutError", "RayDataUserCodeException", "SystemException"]

RayDataUserCodeException = UserCodeError
SystemException = DataError


class ExecutionTimeoutError(DataError):
    """A run took longer than it may. Nothing raises it."""
