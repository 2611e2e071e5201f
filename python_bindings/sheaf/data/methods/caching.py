# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets that keep their blocks, as Spark's cache() does; copies of plans."""

from __future__ import annotations

import copy
from typing import Any

from sheaf import cloudpickle
from sheaf.data import plan
from sheaf.data.caches.in_memory import InMemory, InStore
from sheaf.data.caches.on_disk import OnDisk

Dataset = Any  # Which has this among its bases.

_LEVELS = ("memory", "memory_and_disk", "disk")


class Caching:
    """The methods of Dataset that keep its blocks, or its plan."""

    _cached_from: Dataset = None  # What a cached dataset was made of.

    def cache(self: Dataset, level: str = "memory_and_disk", replicas: int = 1) -> Dataset:
        """Makes all blocks now, and keeps them. A block that is lost, with its node or otherwise,
        is made again when it is read, by what made it first: as anew, where that draws at random
        without a seed. explain() and stats() say what is there.

        Args:
            level: "memory_and_disk": in the object store, which spills them to disk when memory is
                short. "memory": in the object store, as long as all such caches of this process
                have no more than DataContext.cache_memory_bytes; beyond that blocks go, first those
                of the cache that was used least recently, and are made again when they are read.
                "disk": as Arrow files on the nodes that make them, which are mapped when they are
                read; they go with the cache, and with the job.
            replicas: of "disk": on how many nodes each block has a file, as far as there are so
                many nodes; a node that is lost takes no block then, also not one of actors. Copies
                that are lost are not written once more while one is left. Else 1.

        Returns:
            A dataset whose blocks are there, until unpersist() or the last reference to it goes.

        Raises:
            ValueError: there is no such level; or it is "memory", and blocks come from actors,
                which could not make them again.
            OutOfDiskError: the disk has no room for the files. None is left.
            WriteError: a file could not be written.
        """
        if level not in _LEVELS:
            raise ValueError(f"cache: level={level!r}: want one of {list(_LEVELS)}")
        if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 1:
            raise ValueError(f"cache: replicas={replicas!r}: want a number of 1 or more")
        if replicas > 1 and level != "disk":
            raise NotImplementedError(
                f"cache: replicas={replicas}, level={level!r}: only level='disk' keeps copies; "
                "lost blocks of others are made again"
            )
        cache: Any
        if level == "disk":
            cache = OnDisk(self._plan, self._context.cache_directory, replicas)
        elif level == "memory":
            cache = InMemory(self._plan, self._context.cache_memory_bytes)
        else:
            cache = InStore(self._plan)
        bundles = self._filled(cache)
        made = self._materialized(bundles, self._context, self._whole_schema(bundles))
        made._plan = plan.CachedBlocks(
            (), made._plan.bundles, made._plan.schema, "Cached", cache, cache.has_files
        )
        made._stats, made._name, made._cached_from = self._stats, self._name, self
        return made

    def _filled(self: Dataset, cache: Any) -> list[Any]:
        """All blocks, which a cache has now."""
        execution = self._execute()
        try:
            if cache.level == "memory" and execution.pools():
                raise ValueError(
                    f"cache: level='memory': the blocks of {execution.pools()[0]} come from "
                    "actors, and could not be made again when there is no room for them: use "
                    "'memory_and_disk', or 'disk'"
                )
            for bundle in execution:
                cache.add(bundle)
            return list(cache.finish())
        except BaseException:
            execution.close()
            cache.end()
            raise
        finally:
            execution.close()

    def unpersist(self: Dataset) -> Dataset:
        """Gives the blocks of cache() back: what the store has of them, or their files. Datasets
        that were derived from it have those of "memory" and "disk" made again.

        Returns:
            The dataset that was cached, whose blocks are made anew at each use; this one, where it
            was not.
        """
        if self._cached_from is None:
            return self
        source, self._cached_from = self._cached_from, None
        node, self._plan = self._plan, source._plan  # The references go.
        if isinstance(node, plan.CachedBlocks):
            node.cache.end()
        return source

    @staticmethod
    def copy(ds: Dataset, _deep_copy: bool = False, _as: type | None = None) -> Dataset:
        """Another dataset of the same plan, with settings of its own.

        Args:
            ds: the dataset.

        Returns:
            The copy.
        """
        made = copy.deepcopy(ds) if _deep_copy else copy.copy(ds)
        made._context = ds._context.copy()
        if _as is not None:
            made.__class__ = _as
        return made

    def has_serializable_lineage(self: Dataset) -> bool:
        """Returns whether the plan holds no blocks, so that another cluster can run it."""
        return not any(isinstance(node, plan.Blocks) for node in plan.walk(self._plan))

    def serialize_lineage(self: Dataset) -> bytes:
        """The plan as bytes, for another cluster. Sources must be there, too.

        Returns:
            What deserialize_lineage takes.

        Raises:
            ValueError: it holds blocks, which lie in this cluster.
        """
        if not self.has_serializable_lineage():
            raise ValueError(
                "serialize_lineage: the plan holds blocks of this cluster (from_items, "
                "from_pandas, materialize): write them to files, and read those"
            )
        return cloudpickle.dumps(self)

    @staticmethod
    def deserialize_lineage(serialized_ds: bytes) -> Dataset:
        """A dataset of what serialize_lineage gave. It unpickles: trust who made it.

        Args:
            serialized_ds: the bytes.

        Returns:
            The dataset.
        """
        return cloudpickle.loads(serialized_ds)
