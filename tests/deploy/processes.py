# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Who is whose child, by /proc."""

import contextlib
import pathlib


def children_of(parent: int) -> dict[int, tuple[str, str]]:
    """Of each child its state ("Z": it has ended) and its command line, with blanks."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, its_parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(its_parent) == parent:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(entry.name)] = (state, command)
    return found
