# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The command `sheaf` of an installed wheel. It lies beside the package so that it need not import
it."""

import os
import sys

# What becomes Python, or a node that prepares the environments of jobs with it.
_WITH_PYTHON = ("run", "job", "ray", "start", "node")


def main() -> None:
    """Becomes the program `sheaf` of the package."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sheaf", "bin", "sheaf")
    words = ["sheaf", *sys.argv[1:]]
    if os.path.basename(sys.argv[0]) == "ray":  # A link that a user has made.
        words.insert(1, "ray")
    if words[1:2] and words[1] in _WITH_PYTHON:
        os.environ.setdefault("SHEAF_PYTHON", sys.executable)
    try:
        os.execv(program, words)
    except OSError as error:
        sys.exit(
            f"sheaf: {program} cannot be run: {error.strerror}. Install the package sheaf again."
        )
