# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The files that the driver writes, in a storage that is no folder of its machine: they are written
into a local folder and copied now and then. Trials write their checkpoints there themselves."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import threading
import time
from typing import Any

from sheaf.air import storage
from sheaf.air.result import PROGRESS_FILE, RESULTS_FILE
from sheaf.tune.execution.experiment_files import (
    JOURNAL,
    POPULATION,
    SCHEDULER,
    SEARCHER,
    STOPPER,
    read_journal,
    second_of,
)
from sheaf.tune.execution.scratch_folder import ScratchFolder

_EACH_S = 5.0  # How often files are copied,
_SHARE = 20  # and not before so many times as long as the last time took.
_SEARCHERS = SEARCHER.format("")

_Seen = tuple[int, int]  # Size and time of a file.


class Mirror:
    """A local folder whose files go to the folder `path` of a file system. Thread-safe. OSError:
    the storage fails, at the next push."""

    def __init__(self, filesystem: Any, path: str):
        self._files, self._path = storage.files_of(filesystem), path
        self._scratch = ScratchFolder()
        self.local = os.path.join(self._scratch.path, "experiment", path.rsplit("/", 1)[-1])
        os.makedirs(self.local)
        self._known: dict[str, _Seen] = {}  # What was copied.
        self._turn = threading.Lock()
        self._failed: BaseException | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._push_now_and_then, daemon=True)

    def fetch(self, searcher: str, folders: list[str]) -> None:
        """Brings what a restore goes on with: the states, the searcher's from the folder of this
        name, and the results of the trials that lie in these folders."""
        with open(os.path.join(self.local, JOURNAL), "wb") as file:
            file.write(read_journal(self._files.filesystem, self._path)[1])
        for name in self._files.names(self._path):
            if name == searcher:
                self._files.download(f"{self._path}/{name}", os.path.join(self.local, name))
            elif name in (SCHEDULER, STOPPER) or name.startswith(POPULATION):
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
            apart = (JOURNAL, _SEARCHERS)
            for name in self._names():
                if not name.startswith(apart):
                    seen = self._seen([name])
                    self._write(self._read_new(seen), seen)
            self._push_journal()

    def close(self) -> None:
        """Copies all. The local folder goes, unless the storage fails."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self.push()
        except Exception as error:
            self._scratch.keep()
            raise OSError(
                f"{self._path}: the storage failed ({error}); the experiment's files are in "
                f"{self.local}"
            ) from error
        self._scratch.remove()

    def remove(self, folder: str) -> None:
        """A trial's folder goes, here and there."""
        with self._turn:
            shutil.rmtree(os.path.join(self.local, folder), ignore_errors=True)
            self._files.remove(f"{self._path}/{folder}")

    def _names(self, folder: str = "") -> list[str]:
        """Of the files in the local folder, or in one folder of it, as they are called there."""
        return [
            os.path.relpath(os.path.join(at, name), self.local)
            for at, _, names in os.walk(os.path.join(self.local, folder))
            for name in names
            if not name.endswith(".tmp")
        ]

    def _searcher_states(self) -> dict[str, _Seen]:
        folders = [name for name in os.listdir(self.local) if name.startswith(_SEARCHERS)]
        return self._seen([name for folder in folders for name in self._names(folder)])

    def _seen(self, names: list[str]) -> dict[str, _Seen]:
        """Of those that are there still."""
        found = {}
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                state = os.stat(os.path.join(self.local, name))
                found[name] = state.st_size, state.st_mtime_ns
        return found

    def _read_new(self, seen: dict[str, _Seen]) -> dict[str, bytes]:
        """What was not copied as it is, of what is there still."""
        found = {}
        for name, one in seen.items():
            if self._known.get(name) != one:
                with contextlib.suppress(FileNotFoundError):
                    found[name] = pathlib.Path(self.local, name).read_bytes()
        return found

    def _write(self, contents: dict[str, bytes], seen: dict[str, _Seen]) -> None:
        for name, data in contents.items():
            if "/" in name:
                self._files.make_folder(f"{self._path}/{name.rpartition('/')[0]}")
            self._files.write(f"{self._path}/{name}", data)
            self._known[name] = seen[name]

    def _push_journal(self) -> None:
        """With the searcher's state that it names: that goes first, and the one before is removed
        when the journal is there. So the storage can be restored whenever this process is
        killed."""
        states = self._searcher_states()
        while True:
            seen = self._seen([JOURNAL])
            journal = self._read_new(seen)
            contents = self._read_new(states)
            now = self._searcher_states()
            if now == states:
                break
            states = now  # Else the journal may name one that is not among them.
        self._write(contents, states)
        for name, data in journal.items():
            whole = data[: data.rfind(b"\n") + 1]
            self._files.write(second_of(f"{self._path}/{name}"), whole)  # One of both is whole.
            self._write({name: whole}, seen)
        if contents:
            folders = {name.partition("/")[0] for name in states}
            for name in self._files.names(self._path):
                if name.startswith(_SEARCHERS) and name not in folders:
                    self._files.remove(f"{self._path}/{name}")

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
