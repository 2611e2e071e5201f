# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Why a value cannot be sent to another process, before somebody sends it."""

from __future__ import annotations

from typing import Any

from sheaf._internal import serialization


class FailureTuple:
    """A part of a value that cannot be pickled.

    Args:
        obj: the part.
        path: the steps to it from the value, the value's name first.
        parent: the value.
    """

    def __init__(self, obj: Any, path: tuple[str, ...], parent: Any):
        self.obj, self.path, self.parent = obj, path, parent

    def __repr__(self) -> str:
        return (
            f"FailTuple({self.path[-1]} [path={' -> '.join(self.path)}, obj={self.obj}, "
            f"parent={self.parent}])"
        )


def inspect_serializability(
    base_obj: Any, name: str | None = None, depth: int = 3, print_file: Any = None
) -> tuple[bool, set[FailureTuple]]:
    """Tells whether a value can be sent to another process, and which part of it cannot.

    Args:
        base_obj: the value.
        name: what it is called in the path to the part; None: its own name.
        depth: without effect: the whole value is searched.
        print_file: where the part is described; None: stdout.

    Returns:
        (True, empty set), or False and the part that cannot be pickled.
    """
    del depth  # The whole value is searched.
    line = f"Checking Serializability of {base_obj}"
    print("=" * len(line), line, "=" * len(line), sep="\n", file=print_file)
    try:
        serialization.dumps(base_obj)
    except Exception as error:
        print(error, file=print_file)
        path, culprit = serialization.culprit(base_obj, error)
        print(f"{culprit!r} was found to be non-serializable", file=print_file)
        top = name or getattr(base_obj, "__name__", None) or "value"
        return False, {FailureTuple(culprit, (top, top + path) if path else (top,), base_obj)}
    return True, set()
