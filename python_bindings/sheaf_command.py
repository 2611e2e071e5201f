# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The command `sheaf` of an installed wheel. It lies beside the package so that it need not import
it."""

import os
import sys

# What becomes Python, or a node that prepares the environments of jobs with it.
_WITH_PYTHON = ("run", "job", "start", "node")


def main() -> None:
    """Becomes the program `sheaf` of the package."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sheaf", "bin", "sheaf")
    if sys.argv[1:2] and sys.argv[1] in _WITH_PYTHON:
        os.environ.setdefault("SHEAF_PYTHON", sys.executable)
    try:
        os.execv(program, ["sheaf", *sys.argv[1:]])
    except OSError as error:
        sys.exit(
            f"sheaf: {program} cannot be run: {error.strerror}. Install the package sheaf again."
        )
