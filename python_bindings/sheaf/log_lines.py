# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What workers print, on the driver's terminal."""

from __future__ import annotations

import sys


def print_lines(name: str, pid: int, error: bool, lines: list[str]) -> None:
    """Writes the lines of one worker, each after `(name pid=)`, to stdout or stderr."""
    stream = sys.stderr if error else sys.stdout
    prefix = f"({name} pid={pid}) "
    if getattr(stream, "isatty", bool)():
        prefix = f"\033[36m{prefix}\033[0m"
    stream.write("".join(f"{prefix}{line}\n" for line in lines))
    stream.flush()
