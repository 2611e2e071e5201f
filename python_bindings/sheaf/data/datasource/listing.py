# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Files that are found while others are read: what a listing gives comes in parts, one for each
request to the file system, and is kept, so that a source is listed once however often it is read.
"""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sheaf.data.datasource import filesystems
from sheaf.data.datasource.filesystems import FileInfo
from sheaf.data.datasource.partitioning import PathPartitionFilter

__all__ = ["Listing", "find_files", "folder_parts"]

_PATIENCE_S = 0.5  # What takes no longer is listed at once: plans are better where sizes are known.
_LISTS_AT_ONCE = 16


class Listing:
    """Files to read, in their order. All methods are thread-safe.

    Args:
        parts: gives lists of files, each when it is found.
        wanted: chooses among them; None: all.
    """

    def __init__(
        self, parts: Iterator[list[FileInfo]], wanted: Callable[[FileInfo], bool] | None = None
    ) -> None:
        self._parts: Iterator[list[FileInfo]] | None = parts
        self._wanted = wanted
        self._found: list[list[FileInfo]] = []
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self.seen = 0  # Files, with those that are not wanted.

    def begin(self) -> bool:
        """Lists up to the first file, and on for a moment; whether there is a file."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._advance(len(self._found)):
            if time.monotonic() > deadline:
                break
        return bool(self._found)

    def parts(self) -> Iterator[list[FileInfo]]:
        """All files from the first on, those that are not listed yet as they are found. Raises
        OSError; what has been found before comes in front of it."""
        at = 0
        while self._advance(at):
            yield self._found[at]
            at += 1

    def all(self) -> list[FileInfo]:
        """All files, when all have been found. Raises OSError."""
        return [info for part in self.parts() for info in part]

    def is_complete(self) -> bool:
        """Whether all have been found."""
        return self._parts is None and self._error is None

    def _advance(self, at: int) -> bool:
        """Lists until part `at` has been found; whether there is one."""
        if len(self._found) > at:
            return True
        with self._lock:
            while len(self._found) <= at and self._parts is not None:
                try:
                    part = next(self._parts, None)
                except BaseException as error:
                    self._parts, self._error = None, error
                    raise
                if part is None:
                    self._parts = None
                    break
                self.seen += len(part)
                kept = part if self._wanted is None else list(filter(self._wanted, part))
                if kept:
                    self._found.append(kept)
            if len(self._found) <= at and self._error is not None:
                raise self._error
            return len(self._found) > at

    def __reduce__(self) -> Any:
        """Another process does not list again."""
        return _whole, (self.all(),)


def _whole(files: list[FileInfo]) -> Listing:
    made = Listing(iter([files] if files else []))
    made.all()
    return made


def find_files(
    paths: Any,
    filesystem: Any,
    *,
    extensions: Sequence[str] | None = None,
    partition_filter: PathPartitionFilter | None = None,
    ignore_missing_paths: bool = False,
) -> tuple[Any, Listing]:
    """The file system, as one of pyarrow's, and the files to read, in the order in which they are.

    Args:
        paths: as of filesystems.resolve.
        filesystem: as of filesystems.resolve.
        extensions: that files found in folders must have, "csv"; None: any.
        partition_filter: chooses files.
        ignore_missing_paths: leaves out paths that do not exist.

    Returns:
        Both.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: there is no file to read.
    """
    system, plain = filesystems.resolve(paths, filesystem)
    named = set(plain)
    endings = tuple("." + one.lstrip(".").lower() for one in extensions or ())

    def wanted(info: FileInfo) -> bool:
        if endings and info.path not in named and not info.path.lower().endswith(endings):
            return False
        return partition_filter is None or partition_filter.apply(info.path)

    found = Listing(folder_parts(system, plain, ignore_missing_paths), wanted)
    if not found.begin() and not ignore_missing_paths:
        why = f", and none of {found.seen} files ends in {', '.join(endings)}" if found.seen else ""
        raise ValueError(f"no files to read in {plain[:5]}{why if endings else ''}")
    return system, found


def folder_parts(filesystem: Any, paths: Sequence[str], ignore: bool) -> Iterator[list[FileInfo]]:
    """The files that paths name, as filesystems.list_files gives them, in parts. Elsewhere than on
    this machine's disks folders are listed one by one down to the first that has a file, and those
    beside them on the way each with one request, some ahead where the file system allows that.

    Args:
        filesystem: of pyarrow.
        paths: in it.
        ignore: leaves out what does not exist.

    Yields:
        Lists of files.

    Raises:
        FileNotFoundError: a path does not exist, before the first part.
    """
    infos = [info for path in paths for info in filesystems.look_at(filesystem, path, ignore)]
    ahead = _LISTS_AT_ONCE if _is_safe_in_threads(filesystem) else 0
    pool = concurrent.futures.ThreadPoolExecutor(max(1, ahead))
    try:
        for are_folders, some in itertools.groupby(infos, filesystems.is_folder):
            if not are_folders:
                yield [FileInfo(info.path, info.size) for info in some]
                continue
            for info in some:
                base = info.path.rstrip("/")
                if filesystems.is_local(filesystem):
                    yield list(filesystems.files_below(filesystem, base))
                else:
                    yield from _Walk(filesystem, base, pool, ahead).below(base)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _is_safe_in_threads(filesystem: Any) -> bool:
    """Whether several threads may ask at once: of those of fsspec the asynchronous ones."""
    handler = getattr(filesystem, "handler", None)
    return handler is None or bool(getattr(getattr(handler, "fs", None), "async_impl", False))


class _Walk:
    """The files below a folder.

    Args:
        filesystem: of pyarrow.
        base: the folder.
        pool: asks for folders ahead.
        ahead: how many of them; 0: none.
    """

    def __init__(self, filesystem: Any, base: str, pool: Any, ahead: int) -> None:
        self._filesystem, self._base, self._pool, self._ahead = filesystem, base, pool, ahead

    def below(self, folder: str) -> Iterator[list[FileInfo]]:
        """In the order of names, in which a folder's has a "/" behind it."""
        named = filesystems.entries(self._filesystem, folder, self._base)
        named.sort(key=lambda one: one[0] if one[2] else f"{one[0]}/")
        folders = [path for path, _, is_file in named if not is_file]
        others = self._each_below(folders[1:])
        files: list[FileInfo] = []
        for path, size, is_file in named:
            if is_file:
                files.append(FileInfo(path, size))
                continue
            yield files
            files = []
            if path == folders[0]:
                yield from self.below(path)
            else:
                yield next(others)
        yield files

    def _each_below(self, folders: list[str]) -> Iterator[list[FileInfo]]:
        """The files below each of some folders, each found by one request."""
        if not self._ahead:
            yield from map(self._all_below, folders)
            return
        calls = (self._pool.submit(self._all_below, folder) for folder in folders)
        started = collections.deque(itertools.islice(calls, self._ahead))
        while started:
            yield started.popleft().result()
            started.extend(itertools.islice(calls, 1))

    def _all_below(self, folder: str) -> list[FileInfo]:
        return list(filesystems.files_below(self._filesystem, folder, self._base))
