# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The program `sheaf` that belongs to this package."""

import os

from sheaf import _core


def executable() -> str:
    """Where it is; empty: it is sought in PATH."""
    program = os.path.join(os.path.dirname(os.path.abspath(_core.__file__)), "bin", "sheaf")
    return program if os.access(program, os.X_OK) else ""


def command() -> str:
    """What runs it: SHEAF_EXECUTABLE, that of the package, or one of PATH.

    Raises:
        FileNotFoundError: there is none of these.
    """
    import shutil  # For commands, not for `import sheaf`.

    program = os.environ.get("SHEAF_EXECUTABLE") or executable() or shutil.which("sheaf")
    if not program:
        raise FileNotFoundError(
            "the program sheaf is neither in this package nor in PATH; set SHEAF_EXECUTABLE to it"
        )
    return program
