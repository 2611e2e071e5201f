# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Brings the checkpoints of a trial into its folder, from the trial's own process."""

from __future__ import annotations

import os
from typing import Any

from sheaf.air import storage
from sheaf.air.rows import encode


class CheckpointWriter:
    """Of the trial's folder `path` in `filesystem`. OSError: the storage fails."""

    def __init__(self, filesystem: Any, path: str, first: int):
        self._files = storage.files_of(filesystem)
        self._path, self._next = path, first

    def write(
        self, local: str, name: str | None, iteration: int, metrics: dict[str, Any]
    ) -> tuple[str, int]:
        """Copies the files of a local folder into a new checkpoint, which is complete on return.
        Gives its name and number."""
        number = self._next
        self._next += 1
        name = name or f"checkpoint_{number:06d}"
        temporary = f"{self._path}/.incomplete-{number:06d}-{os.getpid()}"
        self._files.make_folder(temporary)
        self._files.upload(local, temporary)
        marker = {"reports": iteration, "number": number, "metrics": metrics}
        self._files.write(f"{temporary}/{storage.MARKER}", encode(marker).encode())
        target = f"{self._path}/{name}"
        if name in self._files.names(self._path):  # Of a run that was lost behind it.
            self._files.remove(target)
        self._files.publish(temporary, target)
        return name, number
