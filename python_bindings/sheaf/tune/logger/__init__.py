# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Callbacks that write what trials report into files."""

from __future__ import annotations

from sheaf.tune.logger.csv import CSVLoggerCallback
from sheaf.tune.logger.json import JsonLoggerCallback
from sheaf.tune.logger.logger import LoggerCallback, pretty_print
from sheaf.tune.logger.tensorboardx import TBXLoggerCallback

__all__ = [
    "CSVLoggerCallback",
    "JsonLoggerCallback",
    "LoggerCallback",
    "TBXLoggerCallback",
    "pretty_print",
]
