# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Directories and wheels on their way to workers: zipped, named by the hash of what they hold, and
kept in the cluster's key-value store in parts, of which the index comes last, as long as a job that
names them runs or a detached actor of it lives."""

from __future__ import annotations

import io
import json
import os
import types
import zipfile
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any

from sheaf import _core
from sheaf._internal import ignore_rules

KEY_SPACE = "sheaf-packages"
MAX_BYTES = 256 << 20
_PART_BYTES = 4 << 20
_EXECUTABLE = 0o111

# What was packed last, by root and patterns: (sizes and times of the files, package).
_packed: dict[tuple[str, str, tuple[str, ...]], tuple[tuple[Any, ...], Package]] = {}


class Package:
    """`name`: "KIND-HASH", the same for the same content. KIND is "dir" (unpacked as it is) or
    "whl" (a wheel)."""

    def __init__(self, name: str, content: bytes | None, path: str | None):
        self.name = name
        self._content = content  # None: read from `path`.
        self._path = path
        self._uploaded_to = 0

    def content(self) -> bytes:
        """Its bytes."""
        if self._content is not None:
            return self._content
        assert self._path is not None
        with open(self._path, "rb") as file:
            return file.read()

    def upload(self) -> None:
        """Puts it into the cluster's key-value store unless it is there."""
        if self._uploaded_to == _core.generation():
            return
        content = self.content()
        parts = range(0, len(content), _PART_BYTES)
        names = [f"{self.name}/{number}" for number in range(len(parts))]
        # Each job owns what it names, be it uploaded by another, which may end sooner.
        if not _core.key_own(KEY_SPACE, [*names, self.name]):
            for name, start in zip(names, parts):
                _core.key_put(
                    KEY_SPACE, name, content[start : start + _PART_BYTES], False, of_job=True
                )
            index = json.dumps({"parts": len(parts), "bytes": len(content)}).encode()
            _core.key_put(KEY_SPACE, self.name, index, False, of_job=True)
        self._uploaded_to = _core.generation()


class Uploaded(Package):
    """One that somebody has uploaded for a job, under this name."""

    def __init__(self, name: str):
        super().__init__(name, None, None)

    def upload(self) -> None:
        """Lets this job own it as well, so that it stays as long as workers may need it."""
        if self._uploaded_to == _core.generation():
            return
        index = _core.key_get(KEY_SPACE, self.name)
        if index is not None:  # Else the worker that wants it says that it is missing.
            parts = range(json.loads(index)["parts"])
            _core.key_own(KEY_SPACE, [*(f"{self.name}/{number}" for number in parts), self.name])
        self._uploaded_to = _core.generation()


def uploaded(uri: str) -> list[Package]:
    """The package of a gcs:// URI, which must be one that name_of_uri takes; none of another."""
    protocol, _, name = uri.partition("://")
    return [Uploaded(name)] if protocol == "gcs" else []


def fetch(name: str, key_get: Callable[[str, str], bytes | None] = _core.key_get) -> bytes:
    """The bytes of a package. LookupError: the cluster does not have it."""
    index = key_get(KEY_SPACE, name)
    if index is None:
        raise LookupError(f"the package {name} is not in the cluster's key-value store")
    about = json.loads(index)
    parts = [key_get(KEY_SPACE, f"{name}/{number}") for number in range(about["parts"])]
    content = b"".join(part for part in parts if part is not None)
    if len(content) != about["bytes"]:
        raise LookupError(
            f"the package {name} has {len(content)} of {about['bytes']} bytes in "
            "the cluster's key-value store"
        )
    return content


def name_of_uri(uri: str) -> str:
    """The name by which workers fetch an archive that is in the cluster (gcs://), or elsewhere.
    ValueError: it is none that they unpack."""
    protocol, _, rest = uri.partition("://")
    if not rest.endswith((".zip", ".whl")) or any(character.isspace() for character in uri):
        raise ValueError(f"runtime_env: {uri!r}: want the URI of a .zip or .whl file")
    if protocol != "gcs":
        return uri
    if "/" in rest:
        raise ValueError(f"runtime_env: {uri!r}: want gcs://NAME, as the upload named it")
    return rest


def of_directory(path: str, excludes: list[str], inside: str = "") -> Package:
    """The files below `path`, below the folder `inside` of the package. ValueError: no directory,
    or too large."""
    root = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(root):
        raise ValueError(f"runtime_env: {path!r} is no directory on this machine")
    names = ignore_rules.files_below(root, excludes)
    return _of_files(root, inside, names, excludes)


def of_archive(path: str) -> Package:
    """A .zip file as it is. ValueError: too large."""
    if os.path.getsize(path) > MAX_BYTES:
        raise ValueError(_too_large(path, os.path.getsize(path), []))
    with open(path, "rb") as file:
        return Package("zip-" + blake2b(file.read(), digest_size=16).hexdigest(), None, path)


def of_module(module: Any, excludes: list[str]) -> Package:
    """An entry of py_modules: a module, the directory of a package, one file, or a wheel.
    ValueError, TypeError: none of these."""
    if isinstance(module, types.ModuleType):
        folders = getattr(module, "__path__", None)
        path = list(folders)[0] if folders else getattr(module, "__file__", None)
        if path is None:
            raise ValueError(f"runtime_env py_modules: {module!r} has no file")
    elif isinstance(module, (str, os.PathLike)):
        path = os.fspath(module)
    else:
        raise TypeError(
            f"runtime_env py_modules: {module!r}: want a module, or the path of a package or wheel"
        )
    path = os.path.abspath(os.path.expanduser(path))
    if path.endswith(".whl") and os.path.isfile(path):
        if os.path.getsize(path) > MAX_BYTES:
            raise ValueError(_too_large(path, os.path.getsize(path), []))
        with open(path, "rb") as file:
            return Package("whl-" + blake2b(file.read(), digest_size=16).hexdigest(), None, path)
    if path.endswith(".py") and os.path.isfile(path):
        return _of_files(os.path.dirname(path), "", [os.path.basename(path)], [])
    if os.path.isdir(path):
        return of_directory(path, excludes, os.path.basename(path))
    raise ValueError(
        f"runtime_env py_modules: {path!r} is no package directory, .py file or "
        "wheel on this machine"
    )


def _of_files(root: str, inside: str, names: list[str], excludes: list[str]) -> Package:
    states = [os.stat(os.path.join(root, name)) for name in names]
    total = sum(state.st_size for state in states)
    if total > MAX_BYTES:
        raise ValueError(_too_large(root, total, zip(names, (state.st_size for state in states))))
    state = tuple(
        (name, s.st_size, s.st_mtime_ns, s.st_mode & _EXECUTABLE) for name, s in zip(names, states)
    )
    key = (root, inside, tuple(names if len(names) == 1 else excludes))
    known = _packed.get(key)
    if known is not None and known[0] == state:
        return known[1]
    digest = blake2b(digest_size=16)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, about in zip(names, states):
            with open(os.path.join(root, name), "rb") as file:
                content = file.read()
            stored = f"{inside}/{name}" if inside else name
            executable = about.st_mode & _EXECUTABLE
            for part in (stored.encode(), b"x" if executable else b"-", content):
                digest.update(len(part).to_bytes(8, "little") + part)
            entry = zipfile.ZipInfo(stored)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o644 | executable) << 16
            archive.writestr(entry, content)
    packed = buffer.getvalue()
    digest.update(
        packed
    )  # Another zlib makes other bytes of the same files: parts of two would not fit together.
    package = Package("dir-" + digest.hexdigest(), packed, None)
    _packed[key] = (state, package)
    return package


def _too_large(path: str, total: int, sizes: Iterable[tuple[str, int]]) -> str:
    largest = sorted(sizes, key=lambda entry: -entry[1])[:3]
    shown = "".join(f"\n  {size >> 20} MiB  {name}" for name, size in largest)
    return (
        f"runtime_env: {path} has {total >> 20} MiB, and at most {MAX_BYTES >> 20} "
        "MiB travel to the workers. Leave files out "
        "with excludes=['pattern', ...], or put data where all nodes read "
        f"it.{' The largest:' if largest else ''}{shown}"
    )
