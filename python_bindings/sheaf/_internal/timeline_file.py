# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The files in which workers record when calls began and ended (python_bindings/timeline.h has the
layout), and what reads them."""

from __future__ import annotations

import os
import struct

from sheaf import _core

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    import mmap
    from typing import Any

_RECORD = struct.Struct("<QQII40s")
_CALLS = 4095  # Of one worker.
_MOST_FILES = 256


def open_file() -> mmap.mmap | None:
    """In a worker: the memory of its file, all zeros; None if there can be none."""
    import mmap

    folder = os.path.join(_core.session_directory(), "timeline")
    try:
        os.makedirs(folder, exist_ok=True)
        _remove_old(folder)
        path = os.path.join(folder, str(os.getpid()))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # All of it now: where the disk is full later, a write to a page that has no block would
            # be SIGBUS.
            os.posix_fallocate(descriptor, 0, (_CALLS + 1) * _RECORD.size)
            return mmap.mmap(descriptor, 0)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
    except OSError:
        return None


def _remove_old(folder: str) -> None:
    names = os.listdir(folder)
    if len(names) <= _MOST_FILES:
        return
    paths = [os.path.join(folder, name) for name in names]
    for path in sorted(paths, key=os.path.getmtime)[: len(paths) - _MOST_FILES // 2]:
        os.unlink(path)


def events() -> list[dict[str, Any]]:
    """What the workers of this node have recorded, as the events of a Chrome trace, by time."""
    folder = os.path.join(_core.session_directory(), "timeline")
    out: list[dict[str, Any]] = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        try:
            with open(os.path.join(folder, name), "rb") as file:
                content = file.read((_CALLS + 1) * _RECORD.size)
        except OSError:
            continue  # Removed meanwhile.
        out.append(
            {
                "ph": "M",
                "name": "process_name",
                "pid": int(name),
                "args": {"name": f"worker {name}"},
            }
        )
        body = content[_RECORD.size : len(content) // _RECORD.size * _RECORD.size]
        for begin, end, thread, _, words in _RECORD.iter_unpack(body):
            if 0 < begin <= end:
                text = words.partition(b"\0")[0].decode(errors="replace")
                out.append(
                    {
                        "cat": "task",
                        "ph": "X",
                        "name": text,
                        "pid": int(name),
                        "tid": thread,
                        "ts": begin / 1e3,
                        "dur": (end - begin) / 1e3,
                    }
                )
    return sorted(out, key=lambda event: event.get("ts", 0.0))
