# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Files that TensorBoard reads."""

from __future__ import annotations

import os
import socket
import struct
import time

from sheaf import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FLUSH_S = 30


class EventFile:
    """A file of events: records with checksums, as TensorFlow has them.

    tensorboardX's SummaryWriter has a queue between processes and a thread for each file, and its
    checksums are Python: that costs ten times what is written. One thread writes at a time.

    Args:
        folder: where the file is made; it exists.

    Raises:
        ImportError: tensorboardX, which has the events, is not installed.
        OSError: the file cannot be made.
    """

    def __init__(self, folder: str):
        from tensorboardX.proto.event_pb2 import Event

        self._event: Any = Event
        # The name has the second: a trial that begins again within one keeps its first file.
        before = sum(".tfevents." in name for name in os.listdir(folder))
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
        path = os.path.join(folder, name + (f".{before}" if before else ""))
        self._file = open(path, "xb")  # noqa: SIM115  # Closed by close().
        self._flushed_s = time.time()
        self._add(Event(wall_time=self._flushed_s, file_version="brain.Event:2"))
        self._file.flush()

    def write(self, summary: Any, step: int | None = None) -> None:
        """Adds an event, which a reader sees within half a minute.

        Args:
            summary: a Summary of tensorboardX.
            step: which one of its kind it is.
        """
        now = time.time()
        self._add(self._event(wall_time=now, step=step, summary=summary))
        if now - self._flushed_s >= _FLUSH_S:
            self._file.flush()
            self._flushed_s = now

    def close(self) -> None:
        """Ends the file; it is whole then."""
        self._file.close()

    def _add(self, event: Any) -> None:
        data = event.SerializeToString()
        size = struct.pack("<Q", len(data))
        self._file.write(b"".join((size, _checksum(size), data, _checksum(data))))


def _checksum(data: bytes) -> bytes:
    """CRC-32C, turned and moved so that a checksum of checksums is none of its own."""
    crc = _core.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
