# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The files that the driver writes, in a storage that is no folder of its machine: they are written
into a local folder and copied now and then. Trials write their checkpoints there themselves."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from typing import Any

from sheaf.air import storage
from sheaf.air.result import PROGRESS_FILE, RESULTS_FILE
from sheaf.tune.execution.experiment_files import JOURNAL, STATES, read_journal, second_of

_EACH_S = 5.0  # How often files are copied,
_SHARE = 20  # and not before so many times as long as the last time took.


class Mirror:
    """A local folder whose files go to the folder `path` of a file system. Thread-safe. OSError:
    the storage fails, at the next push."""

    def __init__(self, filesystem: Any, path: str):
        self._files, self._path = storage.files_of(filesystem), path
        self._root = tempfile.mkdtemp(prefix="sheaf-tune-")
        self.local = os.path.join(self._root, path.rsplit("/", 1)[-1])
        os.makedirs(self.local)
        self._known: dict[str, tuple[int, int]] = {}  # Size and time of what was copied.
        self._turn = threading.Lock()
        self._failed: BaseException | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._push_now_and_then, daemon=True)

    def fetch(self, folders: list[str]) -> None:
        """Brings what a restore goes on with: the states, and the results of the trials that lie in
        these folders."""
        with open(os.path.join(self.local, JOURNAL), "wb") as file:
            file.write(read_journal(self._files.filesystem, self._path)[1])
        for name in self._files.names(self._path):
            if name.startswith(STATES):
                self._fetch(name)
        for folder in folders:
            there = self._files.names(f"{self._path}/{folder}")
            for name in (RESULTS_FILE, PROGRESS_FILE):
                if name in there:
                    self._fetch(f"{folder}/{name}")

    def start(self) -> None:
        """Begins to copy."""
        self._files.make_folder(self._path)
        self._thread.start()

    def push(self) -> None:
        """Copies what has changed; it is there on return."""
        with self._turn:
            if self._failed is not None:
                raise self._failed
            for folder, _, names in os.walk(self.local):
                inside = os.path.relpath(folder, self.local)
                for name in names:
                    self._push(name if inside == "." else f"{inside}/{name}")

    def close(self) -> None:
        """Copies all. The local folder goes, unless the storage fails."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self.push()
        except Exception as error:
            raise OSError(
                f"{self._path}: the storage failed ({error}); the experiment's files are in "
                f"{self.local}"
            ) from error
        shutil.rmtree(self._root, ignore_errors=True)

    def remove(self, folder: str) -> None:
        """A trial's folder goes, here and there."""
        with self._turn:
            shutil.rmtree(os.path.join(self.local, folder), ignore_errors=True)
            self._files.remove(f"{self._path}/{folder}")

    def _push(self, name: str) -> None:
        path = os.path.join(self.local, name)
        try:
            state = os.stat(path)
        except FileNotFoundError:
            return
        seen = (state.st_size, state.st_mtime_ns)
        if self._known.get(name) == seen or name.endswith(".tmp"):
            return
        with open(path, "rb") as file:
            data = file.read()
        if "/" in name:
            self._files.make_folder(f"{self._path}/{name.rpartition('/')[0]}")
        if name == JOURNAL:  # One of the two is whole, whenever this process is killed.
            data = data[: data.rfind(b"\n") + 1]
            self._files.write(second_of(f"{self._path}/{name}"), data)
        self._files.write(f"{self._path}/{name}", data)
        self._known[name] = seen

    def _fetch(self, name: str) -> None:
        data = self._files.read(f"{self._path}/{name}")
        if data is not None:
            path = os.path.join(self.local, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)

    def _push_now_and_then(self) -> None:
        wait_s = _EACH_S
        while not self._closed.wait(wait_s):
            began = time.monotonic()
            try:
                self.push()
            except Exception as error:
                with self._turn:
                    self._failed = self._failed or error
                return
            wait_s = max(_EACH_S, _SHARE * (time.monotonic() - began))
