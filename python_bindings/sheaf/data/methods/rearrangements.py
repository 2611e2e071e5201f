# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What makes a dataset of the rows of others, lazily: limits, unions, other blocks, shuffles,
sorts, groups, joins."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from sheaf.data import plan
from sheaf.data.compute import task_options
from sheaf.data.exchanges import exchange
from sheaf.data.exchanges.sort import Sort
from sheaf.data.methods.arguments import columns_of, count_of, reseeds, seed_of

Dataset = Any  # Which has this among its bases.
GroupedData = Any


class Rearrangements:
    """The lazy methods of Dataset that look at no values, or exchange rows between blocks."""

    _plan: plan.Node

    def _with(self, node: plan.Node) -> Dataset:
        raise NotImplementedError

    def limit(self, limit: int) -> Dataset:
        """The first rows.

        Args:
            limit: how many, 0 or more.

        Returns:
            The dataset.
        """
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit={limit!r}: want a number of rows")
        if limit < 0:
            raise ValueError(f"limit={limit}: want 0 or more rows")
        return self._with(plan.Limit((self._plan,), limit))

    def union(self, *other: Dataset) -> Dataset:
        """Datasets one behind the other.

        Args:
            *other: the others.

        Returns:
            The dataset.
        """
        return self._with(plan.Union((self._plan, *(one._plan for one in other))))

    def zip(self, *other: Dataset) -> Dataset:
        """Columns of datasets of equal lengths side by side; a name that is taken gets _1 etc.

        Args:
            *other: the others.

        Returns:
            The dataset.
        """
        return self._with(plan.Zip((self._plan, *(one._plan for one in other))))

    def repartition(
        self,
        num_blocks: int | None = None,
        target_num_rows_per_block: int | None = None,
        *,
        strict: bool = False,
        shuffle: bool = False,
        keys: list[str] | None = None,
        sort: bool = False,
    ) -> Dataset:
        """Other blocks of the same rows.

        Args:
            num_blocks: how many.
            target_num_rows_per_block: or how many rows each has.
            strict: has no effect: blocks have that many rows, and the last what is left.
            shuffle: rows go to random blocks; else they keep their order.
            keys: rows with equal ones go to one block.
            sort: blocks are sorted by `keys`.

        Returns:
            The dataset.
        """
        if (num_blocks is None) == (target_num_rows_per_block is None):
            raise ValueError("repartition: want either num_blocks or target_num_rows_per_block")
        for name, value in (
            ("num_blocks", num_blocks),
            ("target_num_rows_per_block", target_num_rows_per_block),
        ):
            if value is not None and value < 1:
                raise ValueError(f"repartition: {name}={value}: want 1 or more")
        if keys is not None:
            if num_blocks is None:
                raise ValueError("repartition: keys want num_blocks")
            names = columns_of("repartition", keys)
            return self._with(
                plan.Exchange(
                    (self._plan,), "Repartition", exchange.ByKeys(num_blocks, keys=names, sort=sort)
                )
            )
        if shuffle:
            if num_blocks is None:
                raise ValueError("repartition: shuffle=True wants num_blocks")
            return self.random_shuffle(num_blocks=num_blocks)
        if sort:
            raise ValueError("repartition: sort=True wants keys")
        return self._with(plan.Repartition((self._plan,), num_blocks, target_num_rows_per_block))

    def random_shuffle(
        self, *, seed: Any = None, num_blocks: int | None = None, **options: Any
    ) -> Dataset:
        """All rows in random order.

        Args:
            seed: the same gives the same order for the same blocks.
            num_blocks: how many blocks come out; None: as many as the size asks for.
            **options: options of remote functions, for its tasks.

        Returns:
            The dataset.
        """
        settled = task_options("random_shuffle", None, None, None, options)
        method = exchange.Shuffle(
            count_of("random_shuffle", num_blocks), seed=seed_of(seed), reseeds=reseeds(seed)
        )
        return self._with(plan.Exchange((self._plan,), "RandomShuffle", method, settled))

    def randomize_block_order(self, *, seed: Any = None) -> Dataset:
        """The blocks in random order, their rows as they are.

        Args:
            seed: the same gives the same order.

        Returns:
            The dataset.
        """
        return self._with(plan.RandomizeBlocks((self._plan,), seed_of(seed)))

    def random_sample(self, fraction: float, *, seed: Any = None) -> Dataset:
        """Each row with some probability.

        Args:
            fraction: from 0 to 1.
            seed: the same gives the same rows for the same blocks.

        Returns:
            The dataset.
        """
        if not 0 <= fraction <= 1:
            raise ValueError(f"random_sample: fraction={fraction}: want 0 to 1")
        transform = functools.partial(_sample, float(fraction), seed_of(seed))
        return self._with(
            plan.Map(
                (self._plan,), f"RandomSample({fraction})", transform, keeps_schema=True, alone=True
            )
        )

    def sort(
        self, key: str | list[str], descending: bool | list[bool] = False, boundaries: Any = None
    ) -> Dataset:
        """All rows in the order of columns, NULL last; equal keys keep their order.

        Args:
            key: the columns, the most significant first.
            descending: whether large values come first; of all columns or of each.
            boundaries: values of the first column between blocks, rising; None: from samples.

        Returns:
            The dataset.
        """
        names = columns_of("sort", key)
        if not names:
            raise ValueError("sort: want one column or more")
        down = [descending] * len(names) if isinstance(descending, bool) else list(descending)
        if len(down) != len(names):
            raise ValueError(f"sort: {len(down)} values of descending for {len(names)} columns")
        known = plan.known_schema(self._plan)
        if known is not None:
            from sheaf.data.schema import check_columns

            check_columns(names, known.names, "sort")
        bounds = None if boundaries is None else tuple(sorted(boundaries))
        method = Sort(keys=tuple(zip(names, map(bool, down))), bounds=bounds)
        return self._with(plan.Exchange((self._plan,), "Sort", method))

    def groupby(
        self, key: str | list[str] | None, num_partitions: int | None = None
    ) -> GroupedData:
        """Groups of rows with equal keys.

        Args:
            key: the columns; None: one group of all.
            num_partitions: how many partitions the rows go to; None: as many as the size asks for.

        Returns:
            What has aggregate, count, sum, map_groups and so on.
        """
        from sheaf.data.grouped import GroupedData

        names = () if key is None else columns_of("groupby", key)
        known = plan.known_schema(self._plan)
        if known is not None:
            from sheaf.data.schema import check_columns

            check_columns(names, known.names, "groupby")
        return GroupedData(self, names, count_of("groupby", num_partitions, "num_partitions"))

    def join(
        self,
        ds: Dataset,
        join_type: str,
        num_partitions: int | None = None,
        on: Any = ("id",),
        right_on: Any = None,
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        *,
        partition_size_hint: int | None = None,
        aggregator_ray_remote_args: Mapping[str, Any] | None = None,
        validate_schemas: bool = False,
    ) -> Dataset:
        """Rows of two datasets whose keys are equal.

        Args:
            ds: the other, the right side.
            join_type: "inner", "left_outer", "right_outer", "full_outer", "left_semi",
                "right_semi", "left_anti" or "right_anti".
            num_partitions: how many partitions the rows go to; None: as many as the size asks for.
            on: columns of both, or of this one.
            right_on: columns of the other; None: `on`.
            left_suffix: of columns of this one whose names both have.
            right_suffix: of those of the other.
            partition_size_hint: has no effect.
            aggregator_ray_remote_args: options of remote functions, for its tasks.
            validate_schemas: has no effect: types of keys are always compared.

        Returns:
            The dataset.
        """
        from sheaf.data.exchanges.join import Join

        left = columns_of("join", on)
        right = left if right_on is None else columns_of("join", right_on)
        method = Join(
            count_of("join", num_partitions, "num_partitions"),
            keeps_rows=False,
            kind=join_type,
            left=left,
            right=right,
            suffixes=(left_suffix, right_suffix),
        )
        method.check()
        settled = task_options("join", None, None, None, aggregator_ray_remote_args or {})
        return self._with(
            plan.Exchange((self._plan, ds._plan), f"Join({join_type})", method, settled)
        )


def _sample(fraction: float, seed: int | None, tables: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    from sheaf.data.task_context import TaskContext

    random = np.random.default_rng(TaskContext.current().random_seed(seed))
    for table in tables:
        yield table.filter(pa.array(random.random(table.num_rows) < fraction))
