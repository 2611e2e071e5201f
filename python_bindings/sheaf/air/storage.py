# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The files of a run, on this machine's file system or on one of pyarrow's or fsspec's.

Paths are strings with '/'. What is published appears whole or not at all: on a local file system by
a rename behind fsync, elsewhere because a folder counts only when its MARKER, written last, is
there.
"""

from __future__ import annotations

import os
from typing import Any

MARKER = ".sheaf_checkpoint.json"  # In each complete checkpoint: its number, its metrics.


class LocalFiles:
    """The file system that processes of this machine see."""

    filesystem: Any = None

    def make_folder(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def names(self, path: str) -> list[str]:
        """What lies in the folder; nothing when it does not exist."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes | None:
        """None: there is no such file."""
        try:
            with open(path, "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, data: bytes) -> None:
        """The file is the old one or the new one, never a part; durable on return."""
        temporary = f"{path}.{os.getpid()}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(os.path.dirname(path))

    def upload(self, local: str, path: str) -> None:
        """Copies what is in the local folder into `path`; durable on return."""
        import shutil  # It takes as long as a short trial.

        shutil.copytree(local, path, dirs_exist_ok=True)
        for folder, _, names in os.walk(path):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    os.fsync(file.fileno())
            _sync_folder(folder)

    def download(self, path: str, local: str) -> None:
        import shutil

        shutil.copytree(path, local, dirs_exist_ok=True)

    def publish(self, temporary: str, path: str) -> None:
        os.rename(temporary, path)
        _sync_folder(os.path.dirname(path))

    def remove(self, path: str) -> None:
        """Removes a folder so that nobody ever sees a part of it under its name."""
        import shutil

        folder, name = os.path.split(path)
        going = (
            path if name.startswith(".") else os.path.join(folder, f".going-{name}-{os.getpid()}")
        )
        try:
            os.rename(path, going)
        except FileNotFoundError:
            return
        shutil.rmtree(going, ignore_errors=True)


def _sync_folder(path: str) -> None:
    descriptor = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FsspecFiles:
    """One of fsspec's file systems."""

    def __init__(self, filesystem: Any):
        self.filesystem = filesystem

    def make_folder(self, path: str) -> None:
        self.filesystem.makedirs(path, exist_ok=True)

    def names(self, path: str) -> list[str]:
        self.filesystem.invalidate_cache()
        try:
            return sorted(
                str(entry).rstrip("/").rsplit("/", 1)[-1]
                for entry in self.filesystem.ls(path, detail=False)
            )
        except FileNotFoundError:
            return []

    def read(self, path: str) -> bytes | None:
        self.filesystem.invalidate_cache()
        try:
            return bytes(self.filesystem.cat_file(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, data: bytes) -> None:
        self.filesystem.pipe_file(path, data)

    def upload(self, local: str, path: str) -> None:
        for source, target in _each_file(local, path):
            self.filesystem.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            self.filesystem.put_file(source, target)

    def download(self, path: str, local: str) -> None:
        self.filesystem.invalidate_cache()
        root = self.filesystem._strip_protocol(path).rstrip("/")
        for found in self.filesystem.find(path):
            target = os.path.join(local, str(found)[len(root) :].lstrip("/"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self.filesystem.get_file(found, target)

    def publish(self, temporary: str, path: str) -> None:
        _publish_marker_last(
            self, temporary, path, lambda: self.filesystem.mv(temporary, path, recursive=True)
        )

    def remove(self, path: str) -> None:
        if self.filesystem.exists(path):
            if self.filesystem.exists(f"{path}/{MARKER}"):
                self.filesystem.rm_file(f"{path}/{MARKER}")
            self.filesystem.rm(path, recursive=True)


class ArrowFiles:
    """One of pyarrow's file systems."""

    def __init__(self, filesystem: Any):
        self.filesystem = filesystem

    def make_folder(self, path: str) -> None:
        self.filesystem.create_dir(path, recursive=True)

    def names(self, path: str) -> list[str]:
        from pyarrow import fs

        found = self.filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(entry.base_name for entry in found)

    def read(self, path: str) -> bytes | None:
        try:
            with self.filesystem.open_input_stream(path) as stream:
                return bytes(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, path: str, data: bytes) -> None:
        with self.filesystem.open_output_stream(path) as stream:
            stream.write(data)

    def upload(self, local: str, path: str) -> None:
        for source, target in _each_file(local, path):
            self.make_folder(target.rsplit("/", 1)[0])
            with open(source, "rb") as file, self.filesystem.open_output_stream(target) as stream:
                while block := file.read(4 << 20):
                    stream.write(block)

    def download(self, path: str, local: str) -> None:
        from pyarrow import fs

        os.makedirs(local, exist_ok=True)
        fs.copy_files(
            path,
            local,
            source_filesystem=self.filesystem,
            destination_filesystem=fs.LocalFileSystem(),
        )

    def publish(self, temporary: str, path: str) -> None:
        _publish_marker_last(self, temporary, path, lambda: self.filesystem.move(temporary, path))

    def remove(self, path: str) -> None:
        from pyarrow import fs

        for name in (f"{path}/{MARKER}", path):
            info = self.filesystem.get_file_info(name)
            if info.type == fs.FileType.File:
                self.filesystem.delete_file(name)
            elif info.type == fs.FileType.Directory:
                self.filesystem.delete_dir(name)


Files = LocalFiles | FsspecFiles | ArrowFiles


def _each_file(local: str, path: str) -> list[tuple[str, str]]:
    pairs = []
    for folder, _, names in os.walk(local):
        inside = os.path.relpath(folder, local)
        at = path if inside == "." else f"{path}/{inside}"
        pairs += [(os.path.join(folder, name), f"{at}/{name}") for name in sorted(names)]
    return pairs


def _publish_marker_last(files: Any, temporary: str, path: str, move: Any) -> None:
    """A move of many files is not atomic everywhere, so the marker goes first from the old place
    and last to the new one."""
    marker = files.read(f"{temporary}/{MARKER}")
    if isinstance(files, FsspecFiles):
        files.filesystem.rm_file(f"{temporary}/{MARKER}")
    else:
        files.filesystem.delete_file(f"{temporary}/{MARKER}")
    move()
    files.make_folder(path)  # A checkpoint without files of its own.
    files.write(f"{path}/{MARKER}", marker or b"{}")


def files_of(filesystem: Any) -> Files:
    """The file operations of a file system of pyarrow's or fsspec's; None: the local one.
    TypeError: it is none of these."""
    if filesystem is None:
        return LocalFiles()
    module = type(filesystem).__module__
    if module.startswith("pyarrow"):
        return ArrowFiles(filesystem)
    if all(
        hasattr(filesystem, name)
        for name in ("put_file", "get_file", "cat_file", "pipe_file", "mv", "find")
    ):
        return FsspecFiles(filesystem)
    raise TypeError(
        f"{filesystem!r} is no file system: want one of pyarrow.fs or of fsspec, or "
        "None for the local one"
    )


def resolve(path: str | os.PathLike[str], filesystem: Any = None) -> tuple[Any, str]:
    """(file system, path inside it) of a path or URI. ValueError: a URI without a package that
    knows it."""
    text = os.fspath(path)
    if filesystem is not None:
        files_of(filesystem)
        return filesystem, text.rstrip("/")
    if "://" not in text:
        return None, os.path.abspath(os.path.expanduser(text))
    if text.startswith("file://"):
        return None, text[len("file://") :].rstrip("/") or "/"
    return _of_uri(text)


def _of_uri(text: str) -> tuple[Any, str]:
    """fsspec goes first; what it lacks (a scheme, or a package for one), pyarrow may have."""
    import importlib.util

    said = []
    if importlib.util.find_spec("fsspec") is not None:
        import fsspec

        try:
            found, inside = fsspec.core.url_to_fs(text)
            return found, inside.rstrip("/")
        except (ImportError, ValueError) as error:  # As "Install s3fs to access S3".
            said.append(f"fsspec: {error}")
    if importlib.util.find_spec("pyarrow") is not None:
        from pyarrow import fs

        try:
            found, inside = fs.FileSystem.from_uri(text)
            return found, inside.rstrip("/")
        except (ImportError, ValueError, NotImplementedError, OSError) as error:
            said.append(f"pyarrow: {error}")
    if said:
        raise ValueError(f"{text!r}: no package knows this URI ({'; '.join(said)})")
    raise ValueError(
        f"{text!r}: a URI needs the package fsspec or pyarrow, and neither is "
        "installed; give a plain path, or pip install fsspec"
    )
