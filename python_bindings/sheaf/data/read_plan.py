# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Into how many tasks the reading of a source is cut, and the bundles that they are."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Any

from sheaf.data import plan as logical
from sheaf.data.datasource.datasource import OneByOne
from sheaf.data.operators import Bundle

# Read tasks of a CPU whose outputs an exchange takes: the last ones to end leave little idle.
_TASKS_OF_A_CPU = 4


class ReadBundles:
    """Read tasks as bundles, which are made as they are iterated over.

    Args:
        tasks: a list, or of OneByOne, which makes them as they are needed.
        size: bytes of one that does not know.
    """

    def __init__(self, tasks: Collection[Any], size: int) -> None:
        self._tasks, self._size = tasks, size
        self.are_alike = isinstance(tasks, OneByOne)  # All know how many rows they have, or none.

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Bundle]:
        for task in self._tasks:
            known = task.metadata
            yield Bundle(task, 0, known.num_rows or 0, known.size_bytes or self._size)

    def __contains__(self, one: object) -> bool:
        return any(one == bundle for bundle in self)


def is_light(datasource: Any) -> bool:
    """Whether reading takes no more than making a table, so that this process does it."""
    return bool(getattr(datasource, "is_light", False))


def has_own(datasource: Any, name: str) -> bool:
    """Whether a source has this way to give its read tasks: not where a class that is derived from
    its own has another get_read_tasks."""
    for kind in type(datasource).__mro__:
        if name in vars(kind):
            return True
        if "get_read_tasks" in vars(kind):
            return False
    return False


def read_tasks(
    node: logical.Read, context: Any, cpus: int, whole: int | None = None
) -> Collection[Any]:
    """The read tasks of a source, made as they are iterated over where it can do that.

    Args:
        node: the reading.
        context: DataContext.
        cpus: of the cluster.
        whole: None, or bytes of a block: an exchange takes all, each task of which does work that
            few tasks do once: it combines what it has read, or looks at the other side of a join.
    """
    size = node.datasource.estimate_inmemory_data_size()
    count = node.parallelism
    if count < 1:
        count = parallelism(size, context, cpus)
        if whole is not None and size is not None:
            count = min(count, max(_TASKS_OF_A_CPU * cpus, -(-size // whole)))
        least = getattr(node.datasource, "least_read_tasks", None)
        count = max(count, least() if least is not None else 1)
    if has_own(node.datasource, "lazy_read_tasks"):
        lazy: Collection[Any] = node.datasource.lazy_read_tasks(count, None, context)
        return lazy
    return list(node.datasource.get_read_tasks(count, None, context))


def parallelism(size: int | None, context: Any, cpus: int) -> int:
    """How many blocks data of `size` bytes is read or cut into."""
    if size is None:
        return max(int(context.read_op_min_num_blocks), 2 * cpus)
    most = max(1, size // max(1, int(context.target_min_block_size)))
    least = -(-size // max(1, int(context.target_max_block_size or 1 << 62)))
    return max(min(int(context.read_op_min_num_blocks), most), least, 2 * cpus)


def local_cpus() -> int:
    """CPUs of this machine: what blocks are cut for before there is a cluster."""
    return os.cpu_count() or 1
