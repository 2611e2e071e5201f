# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The loggers that every experiment has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from sheaf.tune.callback import Callback
from sheaf.tune.logger.csv import CSVLoggerCallback
from sheaf.tune.logger.json import JsonLoggerCallback
from sheaf.tune.logger.tensorboardx import TBXLoggerCallback


def with_loggers(callbacks: Sequence[Callback]) -> list[Callback]:
    """The callbacks, with those loggers that are not among them behind: CSV, JSON, and
    TensorBoard's where tensorboardX can be imported. TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1: none."""
    all_of_them = list(callbacks)
    if os.environ.get("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0") == "1":
        return all_of_them
    wanted: list[type[Callback]] = [CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback]
    for kind in wanted:
        if not any(isinstance(one, kind) for one in all_of_them):
            with contextlib.suppress(ImportError):
                all_of_them.append(kind())
    return all_of_them
