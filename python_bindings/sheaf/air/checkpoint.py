# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A checkpoint: a folder of files, here or on another file system."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

from sheaf.air import storage

_METADATA = ".metadata.json"


class Checkpoint:
    """A folder of files, here or on another file system. It may be sent to tasks and actors.

    Args:
        path: of the folder: a plain path, a URI, or a path inside `filesystem`.
        filesystem: one of pyarrow's or fsspec's; None: that of this machine, or of the URI.

    Raises:
        ValueError: a URI, and neither fsspec nor pyarrow is installed.
        TypeError: `filesystem` is none.
    """

    def __init__(self, path: str | os.PathLike[str], filesystem: Any = None):
        self.filesystem, self.path = storage.resolve(path, filesystem)

    @classmethod
    def from_directory(cls, path: str | os.PathLike[str]) -> Checkpoint:
        """Makes a checkpoint of a local folder, which is not copied.

        Args:
            path: of the folder.

        Returns:
            The checkpoint.

        Raises:
            FileNotFoundError: there is no such folder.
        """
        if not os.path.isdir(path):
            raise FileNotFoundError(
                f"{os.fspath(path)!r} is no folder: write the files of a checkpoint into one first"
            )
        return cls(path)

    def to_directory(self, path: str | os.PathLike[str] | None = None) -> str:
        """Copies the files into a local folder.

        Args:
            path: of the folder, which is made where it is missing; None: a new temporary one, which
                is the caller's to remove.

        Returns:
            The path of the folder.

        Raises:
            OSError: a file cannot be read or written.
        """
        import tempfile  # It takes as long as a short trial.

        target = tempfile.mkdtemp(prefix="sheaf-checkpoint-") if path is None else os.fspath(path)
        os.makedirs(target, exist_ok=True)
        self._files.download(self.path, target)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(target, storage.MARKER))
        return target

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """Gives a local folder with the files, to read, as a context manager.

        Yields:
            The path: that of the checkpoint itself if it is local, else of a copy that lives as
            long as the block.

        Raises:
            OSError: a file cannot be read or written.
        """
        if self.filesystem is None:
            yield self.path
            return
        import shutil

        copy = self.to_directory()
        try:
            yield copy
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def get_metadata(self) -> dict[str, Any]:
        """Returns the values that set_metadata has stored with it; {} at first."""
        found: dict[str, Any] = json.loads(self._files.read(f"{self.path}/{_METADATA}") or b"{}")
        return found

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Stores values with the checkpoint, instead of those that were there.

        Args:
            metadata: what JSON can hold.

        Raises:
            TypeError: JSON cannot hold it.
            OSError: it cannot be written.
        """
        self._files.write(f"{self.path}/{_METADATA}", json.dumps(metadata).encode())

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Stores values with the checkpoint, beside those that are there.

        Args:
            metadata: what JSON can hold; it wins over what is there.

        Raises:
            TypeError: JSON cannot hold it.
            OSError: it cannot be written.
        """
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
