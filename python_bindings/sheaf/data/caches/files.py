# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Cached blocks as Arrow IPC files of the node that made them: written, mapped, removed.

Files lie below the spill directory of a node's session in a directory of their job, which the node
removes when the job ends, however it ends (RemoveFiles in raylet/host/process_launcher.cc). Those
in a directory that the user names go with the cache only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

import sheaf
from sheaf import exceptions
from sheaf.data import block as blocks
from sheaf.data.errors import CacheLostError
from sheaf.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclasses.dataclass(eq=False)
class CachedFile:
    """A cached block; a read task, which gives it.

    Attributes:
        name: of the file, below `directory`, or below that of the job on its node.
        directory: that the user named, or None.
        start, stop: the rows of the block that it has.
        size_bytes: of them in memory.
        ref: the block, from which it is made again; None: it cannot be.
        node_id: whose disk it is on.
        path: there.
        copies: further files of it, on other nodes.
    """

    name: str
    directory: str | None
    start: int
    stop: int
    size_bytes: int
    ref: Any
    node_id: str = ""
    path: str = ""
    copies: Sequence[CachedFile] = ()

    @property
    def metadata(self) -> blocks.BlockMetadata:
        """What is known of it without reading."""
        return blocks.BlockMetadata(self.stop - self.start, self.size_bytes)

    def __call__(self) -> Iterator[Any]:
        yield self.table()

    def table(self) -> Any:
        """The rows: mapped, where a file is here; sent by a node that has one; or made again."""
        here = sheaf.get_runtime_context().get_node_id()
        files = (self, *self.copies)
        for file in files:
            if (found := file.mapped()) is not None:
                return found
        for file in files:
            if file.node_id != here and (found := _read_there(file)) is not None:
                return found
        if self.ref is None:
            raise CacheLostError(self.path, self.node_id)
        return self.cut(sheaf.get(self.ref))

    def cut(self, made: Any) -> Any:
        """Its rows of the block."""
        table = blocks.batch_to_table(made)
        if self.start == 0 and self.stop >= table.num_rows:
            return table
        return blocks.slice_rows(table, self.start, self.stop - self.start)

    def mapped(self) -> Any:
        """The rows from the file, if that is here and whole; else None."""
        try:
            with pa.memory_map(self.path) as source:
                table = pa.ipc.open_file(source).read_all()
        except (OSError, pa.ArrowInvalid):
            return None
        return table if table.num_rows == self.stop - self.start else None


def node_of(work: Any) -> str:
    """The node that has the file which a work reads first; "": any will do."""
    first = work.bundles[0].block if work.bundles else None
    return first.node_id if isinstance(first, CachedFile) else ""


def _read_there(file: CachedFile) -> Any:
    """The rows from the node of the file; None: it is dead, or the file is lost."""
    there = NodeAffinitySchedulingStrategy(file.node_id, soft=False)
    bare = dataclasses.replace(file, ref=None, copies=())
    try:
        return sheaf.get(_mapped.options(scheduling_strategy=there).remote(bare))
    except exceptions.RayError:
        return None


@sheaf.remote(num_cpus=0, max_retries=0)
def _mapped(file: CachedFile) -> Any:
    return file.mapped()


def job_directory() -> str:
    """The directory on this node whose files go with the job; of workers only."""
    job = os.environ["SHEAF_JOB"].rpartition("/")[2]
    here = sheaf.get_runtime_context()
    return os.path.join(here.get_temp_dir(), here.get_session_name(), "spill", f"job-{job}")


@sheaf.remote(num_cpus=0)
def write(file: CachedFile, block: Any) -> tuple[str, str]:
    """Writes the file of a block on this node; nothing of it is left if that fails.

    Returns:
        The path, and the node's id; or "full" or "failed", and the reason.
    """
    table = file.cut(block)
    path = os.path.join(file.directory or job_directory(), file.name)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # A file has one dictionary for a column, a block may have several.
        table = table.unify_dictionaries()
        with pa.OSFile(path + ".part", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        os.replace(path + ".part", path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.remove(path + ".part")
        return "full" if error.errno in _FULL else "failed", f"{path}: {error}"
    return path, sheaf.get_runtime_context().get_node_id()


@sheaf.remote(num_cpus=0, max_retries=0)
def _remove(directory: str | None, name: str) -> None:
    shutil.rmtree(os.path.join(directory or job_directory(), name), ignore_errors=True)


def begin_to_remove(directory: str | None, name: str, node_ids: Iterable[str]) -> list[Any]:
    """Removes the files of a cache on some nodes.

    Args:
        directory: that the user named, or None.
        name: the first part of the files' names.
        node_ids: nodes, of which some may be dead.

    Returns:
        References that are ready when that is done.
    """
    alive = {node["NodeID"] for node in sheaf.nodes() if node["Alive"]}
    return [
        _remove.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)
        ).remote(directory, name)
        for node_id in sorted(alive & set(node_ids))
    ]
