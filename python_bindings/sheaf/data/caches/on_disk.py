# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Blocks in files on the nodes that made them; the store has none of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import sheaf
from sheaf.data.caches import files
from sheaf.data.caches.keeper import KEEPER, Cache, Kept, give_up
from sheaf.data.errors import WriteError
from sheaf.data.operators import Bundle
from sheaf.exceptions import OutOfDiskError, RayError
from sheaf.experimental.locations import get_local_object_locations
from sheaf.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_WAIT_S = 30.0  # For files to be removed.


@dataclasses.dataclass(slots=True, eq=False)
class _Filed(Kept):
    """A block that has a file.

    Attributes:
        file: it.
        writing: references that are ready when it and its copies have been written once more.
    """

    file: Any = None
    writing: list[Any] = dataclasses.field(default_factory=list)


class OnDisk(Cache):
    """A cache on disk.

    Args:
        source: the plan that makes the blocks.
        directory: for the files; None: that of the job.
        replicas: on how many nodes each block shall have a file, if there are so many.
    """

    level = "disk"

    def __init__(self, source: Any, directory: str | None, replicas: int = 1) -> None:
        super().__init__(source)
        self._replicas = replicas
        self._directory = None if directory is None else os.path.abspath(directory)
        self._name = f"cache-{uuid.uuid4().hex[:12]}"
        self._bundles: list[Bundle] = []
        self._pending: deque[tuple[_Filed, list[Any]]] = deque()
        self._node_ids: set[str] = set()
        self._most_pending = 2 * max(1, os.cpu_count() or 1)
        remove: Callable[[], Any] = functools.partial(
            files.begin_to_remove, self._directory, self._name, self._node_ids
        )
        # Not at the end of the interpreter: the session has ended then.
        self._finalizer = weakref.finalize(self, KEEPER.later, remove)
        self._finalizer.atexit = False
        KEEPER.add(self)

    def add(self, bundle: Bundle) -> None:
        """A block has been made: it is being written.

        Raises:
            OutOfDiskError: there is no room for it, or for one before.
            WriteError: one could not be written.
        """
        if isinstance(bundle.block, sheaf.ObjectRef):  # Else it is small, and in this process.
            name = f"{self._name}/{len(self._bundles)}.arrow"
            file = files.CachedFile(
                name, self._directory, bundle.start, bundle.stop, bundle.size_bytes, bundle.block
            )
            block = _Filed(bundle.block, bundle.size_bytes, file=file)
            self._pending.append((block, self._write(file)))
            self.has_files = True
            bundle = dataclasses.replace(bundle, block=file, start=0, stop=bundle.num_rows)
        self._bundles.append(bundle)
        while len(self._pending) > self._most_pending:
            self._finish_one()

    def finish(self) -> list[Bundle]:
        """All blocks have been made.

        Returns:
            Bundles of their files.

        Raises:
            OutOfDiskError, WriteError: as of add.
        """
        while self._pending:
            self._finish_one()
        KEEPER.look()
        return self._bundles

    def _write(self, file: files.CachedFile) -> list[Any]:
        """Begins to write a file where its block is, and copies on other nodes."""
        places = get_local_object_locations([file.ref])[file.ref]["node_ids"]
        bare = dataclasses.replace(file, ref=None, copies=())
        call = files.write
        if places:
            call = call.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(places[0], soft=True)
            )
        self._node_ids.update(places)
        written = [call.remote(bare, file.ref)]
        for number, node_id in enumerate(self._others(file, places[:1]), 1):
            there = NodeAffinitySchedulingStrategy(node_id, soft=False)
            self._node_ids.add(node_id)
            # A name of its own: the user's directory may be one for all nodes.
            copy = dataclasses.replace(bare, name=f"{file.name}.{number}")
            written.append(files.write.options(scheduling_strategy=there).remote(copy, file.ref))
        return written

    def _others(self, file: files.CachedFile, places: list[str]) -> list[str]:
        """The nodes for copies of a file; each block has others, so that they spread."""
        if self._replicas == 1:
            return []
        alive = sorted(node["NodeID"] for node in sheaf.nodes() if node["Alive"])
        first = (alive.index(places[0]) + 1 if places and places[0] in alive else 0) + (
            len(self._bundles) if len(alive) > self._replicas else 0
        )
        turned = alive[first % len(alive) :] + alive[: first % len(alive)]
        return [node_id for node_id in turned if node_id not in places][: self._replicas - 1]

    def _place(self, file: files.CachedFile, written: list[Any]) -> None:
        """Files have been written: it knows where. A copy whose node is lost meanwhile is none.

        Raises:
            OutOfDiskError, WriteError: one could not be written.
            RayError: nor could the first.
        """
        found: dict[str, str] = {}
        for number, reference in enumerate(written):
            try:
                path, node_id = sheaf.get(reference)
            except RayError:
                if number == 0:
                    raise
                continue
            if path in ("full", "failed"):
                error = OutOfDiskError if path == "full" else WriteError
                raise error(f"cache: level='disk': {node_id}")
            found.setdefault(node_id, path)
        self._node_ids.update(found)
        (file.node_id, file.path), *others = found.items()
        file.copies = [
            dataclasses.replace(file, ref=None, copies=(), node_id=node_id, path=path)
            for node_id, path in others
        ]

    def _finish_one(self) -> None:
        block, written = self._pending.popleft()
        self._place(block.file, written)
        if self.is_own(block.ref):
            self.blocks.append(block)
        KEEPER.look_soon()

    def settle(self) -> None:
        """Blocks have files now, and go. Those that were made again, as a file or a node was lost,
        are written once more, where they are."""
        going: list[Kept] = []
        blocks = cast("list[_Filed]", self.blocks)
        for block in blocks:
            if block.stays:  # Its file is all that there is.
                block.file.ref = None
            elif block.came_back and block.may_go:
                block.came_back, block.writing = False, self._write(block.file)
            elif block.writing:
                if not sheaf.wait(block.writing, num_returns=len(block.writing), timeout=0)[1]:
                    self._written_again(block)
            elif block.may_go:
                going.append(block)
        give_up(going)
        self.blocks = [block for block in blocks if block.file.ref is not None]

    def _written_again(self, block: _Filed) -> None:
        written, block.writing = block.writing, []
        with contextlib.suppress(RayError, OutOfDiskError, WriteError):
            self._place(block.file, written)

    def end(self) -> None:
        """It was unpersisted: the files go, and what others read of it is made again."""
        self.has_ended = True
        self.forget_return()
        self._finalizer.detach()
        pending = [reference for _, written in self._pending for reference in written]
        self._pending.clear()
        if not sheaf.is_initialized():
            return
        if pending:
            sheaf.wait(pending, num_returns=len(pending), timeout=_WAIT_S)
        gone = files.begin_to_remove(self._directory, self._name, self._node_ids)
        if gone:
            sheaf.wait(gone, num_returns=len(gone), timeout=_WAIT_S)
        KEEPER.look()

    def is_here(self) -> bool:
        """Whether this process can map all of the files."""
        here = sheaf.get_runtime_context().get_node_id() if sheaf.is_initialized() else ""
        return self._node_ids == {here}

    def text(self, before: int = 0) -> str:
        """As explain() and stats() show it."""
        KEEPER.look()
        made = [bundle for bundle in self._bundles if isinstance(bundle.block, files.CachedFile)]
        copies = f" in {self._replicas} copies" if self._replicas > 1 else ""
        return (
            f"cached (disk, {0 if self.has_ended else len(made)} of {len(self._bundles)} blocks on "
            f"disk{copies}, {self.recomputed - before} recomputed)"
        )
