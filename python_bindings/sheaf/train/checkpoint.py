# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A checkpoint: a folder of files, here or on another file system."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from sheaf.train import storage

_METADATA = ".metadata.json"


class Checkpoint:
    """A folder at `path`, a plain path or a URI, or inside `filesystem` (pyarrow's or fsspec's). It
    may be sent to tasks and actors."""

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None):
        self.filesystem, self.path = storage.resolve(path, filesystem)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Of a local folder, which is not copied. FileNotFoundError: there is none."""
        if not os.path.isdir(path):
            raise FileNotFoundError(
                f"{os.fspath(path)!r} is no folder: write the files of a checkpoint into one first"
            )
        return cls(path)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copies the files into a local folder (None: a new temporary one) and gives its path."""
        target = tempfile.mkdtemp(prefix="sheaf-checkpoint-") if path is None else os.fspath(path)
        os.makedirs(target, exist_ok=True)
        self._files.download(self.path, target)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(target, storage.MARKER))
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """A local folder with the files, to read: the checkpoint's own if it is local, else a copy
        for as long as the block runs."""
        if self.filesystem is None:
            yield self.path
            return
        copy = self.to_directory()
        try:
            yield copy
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def get_metadata(self) -> dict[str, Any]:
        """What set_metadata has stored with it."""
        found: dict[str, Any] = json.loads(self._files.read(f"{self.path}/{_METADATA}") or b"{}")
        return found

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Stores values that JSON can hold, instead of those that were there."""
        self._files.write(f"{self.path}/{_METADATA}", json.dumps(metadata).encode())

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Adds to them."""
        self.set_metadata({**self.get_metadata(), **metadata})

    @property
    def _files(self) -> storage.Files:
        return storage.files_of(self.filesystem)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and (self.path, self.filesystem) == (
            other.path,
            other.filesystem,
        )

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        where = "" if self.filesystem is None else f", filesystem={type(self.filesystem).__name__}"
        return f"Checkpoint(path={self.path!r}{where})"
