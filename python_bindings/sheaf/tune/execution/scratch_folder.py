# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Temporary folders of drivers."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile

_PREFIX, _LOCK = "sheaf-tune-", "lock"


class ScratchFolder:
    """A temporary folder that goes with its process: the next one made removes what processes that
    were killed have left. Its lock says that the process lives."""

    def __init__(self) -> None:
        _remove_left_over()
        self.path = tempfile.mkdtemp(prefix=_PREFIX)
        # It is locked before it has its name, else it would look like one that is left over.
        new = os.path.join(self.path, f"{_LOCK}.new")
        self._lock = open(new, "w")  # noqa: SIM115 (the lock is kept)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(new, os.path.join(self.path, _LOCK))

    def remove(self) -> None:
        """It goes."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def keep(self) -> None:
        """It stays, even when the process has ended."""
        os.remove(os.path.join(self.path, _LOCK))


def _remove_left_over() -> None:
    folders = os.path.join(glob.escape(tempfile.gettempdir()), f"{_PREFIX}*")
    for lock in glob.glob(os.path.join(folders, _LOCK)):
        with contextlib.suppress(OSError), open(lock, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: its process lives.
            shutil.rmtree(os.path.dirname(lock), ignore_errors=True)
