# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets that keep their blocks, as Spark's cache() does; copies of plans."""

from __future__ import annotations

import copy
from typing import Any

from sheaf import cloudpickle
from sheaf.data import plan

Dataset = Any  # Which has this among its bases.

_LEVELS = ("memory", "memory_and_disk", "disk")


class Caching:
    """The methods of Dataset that keep its blocks, or its plan."""

    _cached_from: Dataset = None  # What a cached dataset was made of.

    def cache(self: Dataset, level: str = "memory_and_disk", replicas: int = 1) -> Dataset:
        """Makes all blocks now, and keeps them in the object store, which spills them to disk when
        memory is short. Blocks of a node that is lost are made again.

        Args:
            level: "memory_and_disk"; "memory" and "disk" are not in Sheaf.
            replicas: 1; more are not in Sheaf.

        Returns:
            A dataset whose blocks are there, until unpersist() or the last reference to it goes.
        """
        if level not in _LEVELS:
            raise ValueError(f"cache: level={level!r}: want one of {list(_LEVELS)}")
        if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 1:
            raise ValueError(f"cache: replicas={replicas!r}: want a number of 1 or more")
        if level != "memory_and_disk":
            instead = "write_parquet and read_parquet" if level == "disk" else "'memory_and_disk'"
            raise NotImplementedError(f"cache: level={level!r} is not in Sheaf: use {instead}")
        if replicas > 1:
            raise NotImplementedError(
                "cache: replicas above 1 are not in Sheaf: lost blocks are made again"
            )
        made = self.materialize()
        made._cached_from = self
        return made

    def unpersist(self: Dataset) -> Dataset:
        """Gives the blocks of cache() back.

        Returns:
            The dataset that was cached, whose blocks are made anew at each use; this one, where it
            was not.
        """
        if self._cached_from is None:
            return self
        source, self._cached_from = self._cached_from, None
        self._plan = source._plan  # The references go.
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
