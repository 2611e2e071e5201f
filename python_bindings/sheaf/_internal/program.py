# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The program `sheaf` that belongs to this package."""

import os
import sys

from sheaf import _core


def executable() -> str:
    """Where it is; empty: it is sought in PATH."""
    program = os.path.join(os.path.dirname(os.path.abspath(_core.__file__)), "bin", "sheaf")
    return program if os.access(program, os.X_OK) else ""


_EMITTED = (
    "debug",
    "dont_write_bytecode",
    "no_site",
    "verbose",
    "bytes_warning",
    "quiet",
    "optimize",
    "isolated",
    "ignore_environment",
    "no_user_site",
    "safe_path",
    "dev_mode",
)


def interpreter_flags() -> list[str]:
    """The flags that start another interpreter as this one was started."""
    if not (sys.warnoptions or sys._xoptions or any(getattr(sys.flags, f) for f in _EMITTED)):
        return []
    import subprocess  # For those who gave some: it takes a good part of init.

    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined,no-any-return]


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
