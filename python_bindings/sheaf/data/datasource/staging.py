# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How the files of a write come to their names. Tasks write below ".sheaf-WORDS" in the folder,
which readers do not see; the words tell which process the driver of the write is. When all have
written, a list of what is to be moved and deleted is put there, then files are moved, then old ones
deleted, then the folder of the write goes: so old files are whole until all new ones are there. A
driver that dies before the list is there has changed nothing; one that dies later leaves the list,
and the next write to the folder does what it says."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import posixpath
import socket
from collections.abc import Sequence
from typing import Any

from sheaf.data.errors import WriteError

__all__ = ["Staging", "delete_files", "finish_dead_writes", "folder_of"]

_PREFIX = ".sheaf-"
_SEPARATOR = "~"  # In no name of a host.
_LIST = "commit.json"
_log = logging.getLogger("sheaf.data")


class Staging:
    """The folder of one write.

    Args:
        filesystem: of pyarrow; it can move files.
        folder: of the write, as of folder_of.
    """

    def __init__(self, filesystem: Any, folder: str) -> None:
        self._filesystem, self.folder = filesystem, folder

    def commit(self, moves: Sequence[tuple[str, str]], deletes: Sequence[str]) -> None:
        """Moves files, then deletes others.

        Args:
            moves: where each lies, and where it shall lie.
            deletes: files that the new ones replace.

        Raises:
            WriteError: files could not be moved, and none was added; or old ones could not be
                deleted, and the next write goes on with that when this process has ended.
        """
        listed = posixpath.join(self.folder, _LIST)
        with self._filesystem.open_output_stream(listed + ".part") as file:
            file.write(json.dumps({"moves": list(moves), "deletes": list(deletes)}).encode())
        self._filesystem.move(listed + ".part", listed)
        added: list[str] = []
        final = self.folder
        try:
            for temporary, final in moves:
                is_new = not _is_there(self._filesystem, final)
                self._filesystem.create_dir(posixpath.dirname(final), recursive=True)
                self._filesystem.move(temporary, final)
                added += [final] * is_new
        except BaseException as error:
            # Back to how it was; the list first, as the next write would go on with it.
            self._filesystem.delete_file(listed)
            delete_files(self._filesystem, added)
            self.remove()
            if isinstance(error, OSError):
                raise WriteError(f"{final}: {error}; nothing was written") from error
            raise
        delete_files(self._filesystem, deletes)
        self.remove()

    def remove(self) -> None:
        """Removes the folder and what is in it."""
        try:
            self._filesystem.delete_dir(self.folder)
        except FileNotFoundError:
            pass


def folder_of(path: str, word: str) -> str:
    """The folder of a write whose driver is this process.

    Args:
        path: the folder that is written to.
        word: of the write.

    Returns:
        It, below `path`.
    """
    return posixpath.join(path, _PREFIX + _SEPARATOR.join([*_this_process(), word]))


def delete_files(filesystem: Any, paths: Sequence[str]) -> None:
    """Deletes files; one that is not there is none.

    Args:
        filesystem: of pyarrow.
        paths: of the files.

    Raises:
        WriteError: one could not be deleted.
    """
    for path in paths:
        try:
            filesystem.delete_file(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise WriteError(
                f"{path}: {error}; it was to be deleted, and all new files are there"
            ) from error


def finish_dead_writes(filesystem: Any, path: str) -> None:
    """Goes on with, or removes, what writes whose driver is dead have left in a folder. Those of
    drivers on other machines are named in the log, as they may live.

    Args:
        filesystem: of pyarrow.
        path: the folder.
    """
    from pyarrow import fs

    selector = fs.FileSelector(path, allow_not_found=True)
    for info in filesystem.get_file_info(selector):
        if info.type != fs.FileType.Directory or not info.base_name.startswith(_PREFIX):
            continue
        alive = _lives(info.base_name)
        if alive is None:
            _log.warning(
                "%s is of a write on another machine, which may go on; if it does not, delete it",
                info.path,
            )
        elif not alive:
            _finish(filesystem, info.path)


def _finish(filesystem: Any, folder: str) -> None:
    todo = _read(filesystem, posixpath.join(folder, _LIST))
    for temporary, final in todo["moves"] if todo is not None else ():
        if _is_there(filesystem, temporary):  # Else it has been moved.
            filesystem.create_dir(posixpath.dirname(final), recursive=True)
            filesystem.move(temporary, final)
    if todo is not None:
        delete_files(filesystem, todo["deletes"])
        _log.warning("%s: went on with a write whose driver had died", folder)
    filesystem.delete_dir(folder)


def _is_there(filesystem: Any, path: str) -> bool:
    from pyarrow import fs

    return bool(filesystem.get_file_info(path).type == fs.FileType.File)


def _read(filesystem: Any, path: str) -> Any:
    """The value in a file of JSON; None: it is not there."""
    try:
        with filesystem.open_input_stream(path) as file:
            return json.loads(file.read())
    except FileNotFoundError:
        return None


def _this_process() -> tuple[str, str, str, str]:
    """Host, boot of it, process, and when that began."""
    boot = _text("/proc/sys/kernel/random/boot_id") or ""
    return socket.gethostname(), boot[:8], str(os.getpid()), _started(str(os.getpid()))


def _lives(name: str) -> bool | None:
    """Whether the driver lives whose folder has this name; None: it is of another machine."""
    words = name.removeprefix(_PREFIX).split(_SEPARATOR, 4)
    host, boot, _, _ = _this_process()
    if len(words) < 5 or words[0] != host:
        return None
    return words[1] == boot and words[3] == _started(words[2])


def _started(pid: str) -> str:
    """When a process began, in ticks since the machine did; "" when there is none of this
    number."""
    text = _text(f"/proc/{pid}/stat")
    return "" if text is None else text.rpartition(")")[2].split()[19]


def _text(path: str) -> str | None:
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return None
