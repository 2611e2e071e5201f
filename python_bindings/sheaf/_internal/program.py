# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The program `sheaf` that belongs to this package."""

import os

from sheaf import _core


def executable() -> str:
    """Where it is; empty: it is sought in PATH."""
    program = os.path.join(os.path.dirname(os.path.abspath(_core.__file__)), "bin", "sheaf")
    return program if os.access(program, os.X_OK) else ""
