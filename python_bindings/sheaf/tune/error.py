# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What goes wrong in an experiment."""

from __future__ import annotations


class TuneError(Exception):
    """An experiment was told something that does not fit, or one of its trials has failed."""
