# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A file of records that survives a kill at any byte: each line is a checksum and a value in JSON.

What was written before the last `write` that returned is there after the process is killed, and
after the machine fails within a fifth of a second. A torn end is cut off when the file is read.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
import zlib
from collections.abc import Callable
from typing import Any

_SYNC_EACH_S = 0.2
_SMALLEST_TO_COMPACT = 1 << 20
_GROWTH = 4  # The file is written anew when it has so many times the bytes of what counts.


def encode_line(value: Any) -> bytes:
    """A record as it stands in the file. TypeError: JSON cannot hold it."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read_records(data: bytes) -> tuple[list[Any], int]:
    """The records that are whole, and where the last of them ends. Each stands for itself: one that
    a disk has damaged does not take those behind it along."""
    records, at, good_until = [], 0, 0
    while (end := data.find(b"\n", at)) >= 0:
        line = data[at:end]
        at = end + 1
        if line[8:9] == b" " and line[:8] == b"%08x" % zlib.crc32(line[9:]):
            records.append(json.loads(line[9:]))
            good_until = at
    return records, good_until


class Journal:
    """Of the local file `path`. `snapshot` gives one record that stands for all others. Used by one
    thread; another brings the bytes to the disk. OSError: the disk fails, or is full; the file has
    whole records then."""

    def __init__(self, path: str, snapshot: Callable[[], Any]):
        self._path, self._snapshot = path, snapshot
        self._unsynced = threading.Event()
        self._closed = threading.Event()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        _, good = read_records(_read(path))
        os.ftruncate(self._file, good)
        self._size, self._compacted = good, good
        self._failed: OSError | None = None
        self._turn = threading.Lock()  # The file is not replaced while it is synced.
        # The thread does not keep this: after an interrupt, which may come before its owner has it,
        # nobody would close it.
        self._syncer = threading.Thread(
            target=_sync_now_and_then,
            args=(weakref.ref(self), self._closed, self._unsynced),
            daemon=True,
        )
        self._syncer.start()

    def write(self, value: Any, sync: bool = False) -> None:
        """Appends a record. sync: it is on the disk when this returns."""
        if self._failed:
            raise self._failed
        line = encode_line(value)
        written = os.write(self._file, line)
        if written != len(line):
            os.ftruncate(self._file, self._size)
            raise OSError(28, f"the disk is full: {self._path} has the state up to here")
        self._size += written
        if sync:
            os.fsync(self._file)
        else:
            self._unsynced.set()
        if self._size > max(_SMALLEST_TO_COMPACT, _GROWTH * self._compacted):
            self._compact()

    def close(self) -> None:
        """All records are on the disk; nothing is written any more."""
        self._closed.set()
        self._unsynced.set()
        self._syncer.join()
        os.fsync(self._file)
        file, self._file = self._file, -1
        os.close(file)

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:  # Its owner was interrupted.
            self._closed.set()
            self._unsynced.set()
            os.close(self._file)

    def _compact(self) -> None:
        temporary = f"{self._path}.tmp"
        line = encode_line(self._snapshot())
        file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        written = 0
        while written < len(line):
            written += os.write(file, line[written:])
        os.fsync(file)
        with self._turn:
            os.replace(temporary, self._path)
            os.close(self._file)
            self._file = file
        self._size = self._compacted = len(line)

    def _sync(self) -> None:
        try:
            with self._turn:
                os.fsync(self._file)
        except OSError as error:
            self._failed = error


def _sync_now_and_then(
    journal: weakref.ref[Journal], closed: threading.Event, unsynced: threading.Event
) -> None:
    while not closed.wait(_SYNC_EACH_S):
        unsynced.wait()
        unsynced.clear()
        if (one := journal()) is None:
            return
        one._sync()
        del one


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
