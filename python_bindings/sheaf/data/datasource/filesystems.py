# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Paths and file systems: pyarrow's and fsspec's, by argument or by the scheme of a path; listing;
and what is tried again when a disk or a store far away fails for a moment."""

from __future__ import annotations

import dataclasses
import errno
import functools
import itertools
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sheaf.data.errors import MissingPackageError
from sheaf.data.task_context import TaskContext

__all__ = [
    "FileInfo",
    "entries",
    "files_below",
    "is_damage",
    "is_folder",
    "is_local",
    "list_files",
    "look_at",
    "resolve",
    "retried",
    "stream_retried",
]

_T = TypeVar("_T")
_TRIES, _TRIES_OF_LISTED = 4, 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 32.0
_FINAL = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
_DAMAGE = re.compile(
    "parquet|thrift|corrupt|compress|inflate|zlib|lz4|zstd|brotli|bz2|snappy|end of stream|decod"
    "|magic|malformed|invalid|page|checksum",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile("AWS Error|curlCode|google::cloud|Azure|Could not connect", re.IGNORECASE)
_FINAL_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.EINVAL)


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """A file to read: its path in its file system, and its bytes (None: unknown)."""

    path: str
    size: int | None


def resolve(paths: Any, filesystem: Any = None) -> tuple[Any, list[str]]:
    """The file system of these paths, as one of pyarrow's, and the paths in it.

    Args:
        paths: one or several, as strings or os.PathLike; with a scheme ("s3://bucket/x",
            "memory://x") when no file system is given.
        filesystem: of pyarrow or fsspec.

    Returns:
        Both. All paths lie in one file system.
    """
    from pyarrow import fs

    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not several:
        raise ValueError("no paths to read: want at least one")
    for path in several:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path {path!r} of type {type(path).__name__}: want a string")
    names = [os.path.expanduser(os.fspath(path)) for path in several]
    if filesystem is not None:
        if not isinstance(filesystem, fs.FileSystem):
            filesystem = fs.PyFileSystem(fs.FSSpecHandler(filesystem))
        return filesystem, [_without_scheme(name) for name in names]
    if "://" not in names[0]:
        return fs.LocalFileSystem(), [os.path.abspath(_without_scheme(name)) for name in names]
    try:
        found, _ = fs.FileSystem.from_uri(names[0])
        return found, [fs.FileSystem.from_uri(name)[1] for name in names]
    except (ValueError, OSError):  # A scheme that only fsspec knows.
        return _of_fsspec(names)


def _of_fsspec(names: list[str]) -> tuple[Any, list[str]]:
    from pyarrow import fs

    try:
        import fsspec
    except ImportError as error:
        raise MissingPackageError(f"the path {names[0]}", "fsspec") from error
    found, _ = fsspec.core.url_to_fs(names[0])
    plain = [fsspec.core.url_to_fs(name)[1] for name in names]
    return fs.PyFileSystem(fs.FSSpecHandler(found)), plain


def _without_scheme(name: str) -> str:
    return name.partition("://")[2] if "://" in name else name


def is_local(filesystem: Any) -> bool:
    """Whether a pyarrow file system is the machine's own."""
    return getattr(filesystem, "type_name", "") == "local"


def list_files(
    filesystem: Any, paths: Sequence[str], ignore_missing_paths: bool = False
) -> Iterator[FileInfo]:
    """The files that these paths name: each itself, of a folder all below it, in order of names.
    Files and folders whose names begin with "." or "_" are left out of folders.

    Args:
        filesystem: of pyarrow.
        paths: in it.
        ignore_missing_paths: leaves out what does not exist.

    Yields:
        The files.

    Raises:
        FileNotFoundError: a path does not exist.
    """
    for path in paths:
        for info in look_at(filesystem, path, ignore_missing_paths):
            if is_folder(info):
                yield from files_below(filesystem, path.rstrip("/"))
            else:
                yield FileInfo(path, info.size)


def look_at(filesystem: Any, path: str, ignore_missing: bool = False) -> list[Any]:
    """What a path names.

    Args:
        filesystem: of pyarrow.
        path: in it.
        ignore_missing: gives nothing for one that does not exist.

    Returns:
        A list of one pyarrow.fs.FileInfo, or of none.

    Raises:
        FileNotFoundError: it does not exist.
    """
    from pyarrow import fs

    (info,) = retried(functools.partial(filesystem.get_file_info, [path]), path)
    if info.type != fs.FileType.NotFound:
        return [info]
    if ignore_missing:
        return []
    raise FileNotFoundError(errno.ENOENT, "no such file or folder", path)


def is_folder(info: Any) -> bool:
    """Whether a pyarrow.fs.FileInfo is of a folder."""
    from pyarrow import fs

    return bool(info.type == fs.FileType.Directory)


def files_below(filesystem: Any, folder: str, base: str | None = None) -> Iterator[FileInfo]:
    """All files below a folder, in order of names, but for hidden ones, by one request.

    Args:
        filesystem: of pyarrow.
        folder: without a "/" at its end.
        base: the folder above it of whose own name nothing makes them hidden; None: itself.

    Yields:
        The files.
    """
    for name, size, is_file in _visible(filesystem, folder, base or folder, recursive=True):
        if is_file:
            yield FileInfo(name, size)


def entries(filesystem: Any, folder: str, base: str) -> list[tuple[str, int | None, bool]]:
    """What is right below a folder, but for hidden files and folders.

    Args:
        filesystem, folder, base: as of files_below.

    Returns:
        Of each its path, its bytes, and whether it is a file; else it is a folder.
    """
    return _visible(filesystem, folder, base, recursive=False)


def _visible(
    filesystem: Any, folder: str, base: str, recursive: bool
) -> list[tuple[str, int | None, bool]]:
    listed = retried(functools.partial(_listed, filesystem, folder, recursive), folder)
    named = [one for one in listed if not _is_hidden(one[0][len(base) :])]
    return sorted(named, key=lambda one: one[0])


def _listed(filesystem: Any, folder: str, recursive: bool) -> list[tuple[str, int | None, bool]]:
    from pyarrow import fs

    handler = getattr(filesystem, "handler", None)
    if isinstance(handler, fs.FSSpecHandler) and not (recursive and handler.fs.async_impl):
        return list(_listed_by_fsspec(handler.fs, folder, recursive))
    found = filesystem.get_file_info(fs.FileSelector(folder, recursive=recursive))
    named = ((below.path, below.size, below) for below in found)
    # The type is asked for last, as that takes the longest.
    return [
        (name, size, size is not None or below.is_file)
        for name, size, below in named
        if size is not None or below.is_file or below.type == fs.FileType.Directory
    ]


def _listed_by_fsspec(
    filesystem: Any, folder: str, recursive: bool
) -> Iterator[tuple[str, int | None, bool]]:
    """Folder by folder, as its own find() would, which passes over folders that it cannot list."""
    left = [folder]
    while left:
        above = left.pop()
        for info in filesystem.ls(above, detail=True):
            name, kind = info["name"], info["type"]
            if name.strip("/") == above.strip("/") or kind not in ("file", "directory"):
                continue
            yield name, info["size"] if kind == "file" else None, kind == "file"
            if recursive and kind == "directory":
                left.append(name)


def _is_hidden(below: str) -> bool:
    """Whether a path below a folder has a part that readers do not see."""
    if "/." not in below and "/_" not in below:
        return False
    return any(part.startswith((".", "_")) and "=" not in part for part in below.split("/"))


def is_damage(error: BaseException) -> bool:
    """Whether an error says that what was read is not what it should be. Arrow raises OSError for
    that, too, without a number.

    Args:
        error: of reading.

    Returns:
        Whether it does.
    """
    return (
        type(error) is OSError
        and error.errno is None
        and _DAMAGE.search(str(error)) is not None
        and _ELSEWHERE.search(str(error)) is None
    )


def _may_pass(error: BaseException) -> bool:
    """Whether trying again can help: not when the file is not there or damaged, or the disk is
    full."""
    return (
        isinstance(error, OSError)
        and not isinstance(error, _FINAL)
        and error.errno not in _FINAL_NUMBERS
        and not is_damage(error)
    )


def _is_listed(error: BaseException) -> bool:
    """Whether DataContext.retried_io_errors names this error: by words that are in it, or by an
    expression that matches there."""
    from sheaf.data.context import DataContext

    words = TaskContext.current().kwargs.get("retried_io_errors")
    if words is None:
        words = DataContext.get_current().retried_io_errors
    text = f"{type(error).__name__}: {error}"
    return any(word in text or _matches(word, text) for word in words or ())


def _matches(expression: str, text: str) -> bool:
    try:
        return re.search(expression, text) is not None
    except re.error:  # Plain words.
        return False


def _pause_s(error: Exception, attempt: int) -> float | None:
    """How long to wait after the attempt of this number, from 0; None: there is no other."""
    pause = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
    if _is_listed(error):  # Of a store that wants less: not all who asked ask again at once.
        return pause * random.uniform(0.8, 1.2) if attempt + 1 < _TRIES_OF_LISTED else None
    return pause if attempt + 1 < _TRIES and _may_pass(error) else None


def _wait_or_raise(
    error: Exception, attempt: int, doing: str, sleep: Callable[[float], None]
) -> None:
    pause = _pause_s(error, attempt)
    if pause is None:
        if isinstance(error, OSError) or attempt:
            error.add_note(f"while {doing}, attempt {attempt + 1}")
        raise error
    sleep(pause)


def retried(call: Callable[[], _T], what: str, sleep: Callable[[float], None] = time.sleep) -> _T:
    """What the call gives; on an error that may pass it is made again, with pauses of 0.1 s, 0.2 s
    and so on up to 32 s: up to 4 times in all on an I/O error, up to 10 times on one that
    DataContext.retried_io_errors names.

    Args:
        call: can be repeated.
        what: the path, noted on the error that is raised at last.
        sleep: waits.

    Returns:
        Its result.
    """
    for attempt in itertools.count():
        try:
            return call()
        except Exception as error:
            _wait_or_raise(error, attempt, f"reading or writing {what}", sleep)
    raise AssertionError("unreachable")


def stream_retried(
    make: Callable[[], Iterator[_T]], what: str, sleep: Callable[[float], None] = time.sleep
) -> Iterator[_T]:
    """As retried, of an iterator: begun anew on an error that comes after `n` items, which it then
    skips.

    Args:
        make: gives the same items each time.
        what: the path.
        sleep: waits.

    Yields:
        The items, each once.
    """
    given = 0
    for attempt in itertools.count():
        try:
            for number, item in enumerate(make()):
                if number >= given:
                    given += 1
                    yield item
            return
        except Exception as error:
            _wait_or_raise(error, attempt, f"reading {what}", sleep)
