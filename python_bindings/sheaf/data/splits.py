# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Parts of a dataset. They are slices of its blocks: nothing is copied."""

from __future__ import annotations

import math
from typing import Any

from sheaf.data.slices import cut_at, even_ends, rows_of

Dataset = Any  # Which has this among its bases.
MaterializedDataset = Any
DataIterator = Any


class Splits:
    """The splitting methods of Dataset. All but streaming_split make it first."""

    def _cut(self: Dataset, bundles: list[Any], ends: list[int]) -> list[MaterializedDataset]:
        schema = self._whole_schema(bundles)
        empty = [bundle.cut(0, 0) for bundle in bundles[:1]]  # It has the schema.
        return [
            self._materialized(part or empty, self._context, schema)
            for part in cut_at(bundles, ends)
        ]

    def split(
        self: Dataset, n: int, *, equal: bool = False, locality_hints: list[Any] | None = None
    ) -> list[MaterializedDataset]:
        """Parts of about equal numbers of rows, in order.

        Args:
            n: how many.
            equal: they are equal, and up to n - 1 rows at the end are left out.
            locality_hints: has no effect.

        Returns:
            The parts.
        """
        if n < 1:
            raise ValueError(f"split: n={n}: want 1 part or more")
        if locality_hints is not None and len(locality_hints) != n:
            raise ValueError(f"split: {len(locality_hints)} locality_hints for {n} parts")
        bundles = self._run()
        rows = rows_of(bundles)
        each = rows // n
        ends = [each * part for part in range(1, n + 1)] if equal else even_ends(rows, n)
        return self._cut(bundles, ends)

    def split_at_indices(self: Dataset, indices: list[int]) -> list[MaterializedDataset]:
        """Parts that begin at some rows.

        Args:
            indices: rising row numbers, 0 or more.

        Returns:
            One part more than there are indices.
        """
        if not indices:
            raise ValueError("split_at_indices: want one index or more")
        if any(index < 0 for index in indices) or sorted(indices) != list(indices):
            raise ValueError(f"split_at_indices: {indices}: want rising numbers of 0 or more")
        bundles = self._run()
        return self._cut(bundles, [*indices, max(rows_of(bundles), indices[-1])])

    def split_proportionately(self: Dataset, proportions: list[float]) -> list[MaterializedDataset]:
        """Parts of some shares of the rows, and a last one of the rest.

        Args:
            proportions: shares above 0, less than 1 together.

        Returns:
            One part more than there are proportions.
        """
        if not proportions or any(share <= 0 for share in proportions) or sum(proportions) >= 1:
            raise ValueError(
                f"split_proportionately: {proportions}: want shares above 0, less than 1 together"
            )
        bundles = self._run()
        rows, ends, total = rows_of(bundles), [], 0.0
        for share in proportions:
            total += share
            ends.append(int(rows * total + 1e-9))
        return self._cut(bundles, [*ends, rows])

    def train_test_split(
        self: Dataset,
        test_size: int | float,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        stratify: str | None = None,
    ) -> tuple[MaterializedDataset, MaterializedDataset]:
        """A part to train with and one to test with.

        Args:
            test_size: rows, or a share between 0 and 1.
            shuffle: rows are shuffled first.
            seed: of the shuffle.
            stratify: a column of which each value has the same share in both.

        Returns:
            Both.
        """
        if isinstance(test_size, bool) or not isinstance(test_size, (int, float)):
            raise TypeError(f"train_test_split: test_size={test_size!r}: want a number")
        if isinstance(test_size, float) and not 0 < test_size < 1:
            raise ValueError(
                f"train_test_split: test_size={test_size}: want a share between 0 and 1"
            )
        if isinstance(test_size, int) and test_size < 1:
            raise ValueError(f"train_test_split: test_size={test_size}: want 1 row or more")
        if stratify is not None:
            if isinstance(test_size, int):
                raise ValueError("train_test_split: stratify wants a share as test_size")
            return self._stratified(test_size, stratify, seed if shuffle else None, shuffle)
        whole = self.random_shuffle(seed=seed) if shuffle else self
        bundles = whole._run()
        rows = rows_of(bundles)
        test = test_size
        if isinstance(test_size, float):  # Rounded up, as in scikit-learn.
            test = math.ceil(rows * test_size - 1e-9)
        if test > rows or (isinstance(test_size, int) and test == rows):
            raise ValueError(f"train_test_split: test_size={test_size}, and there are {rows} rows")
        train, held_out = self._cut(bundles, [rows - test, rows])
        return train, held_out

    def _stratified(
        self: Dataset, share: float, column: str, seed: int | None, shuffle: bool
    ) -> Any:
        import functools

        whole = self.random_shuffle(seed=seed) if shuffle else self
        marked = (
            whole.groupby(column)
            .map_groups(functools.partial(_mark, share), batch_format="pyarrow")
            .materialize()
        )
        parts = []
        for wanted in (False, True):
            keep = functools.partial(_keep, wanted)
            parts.append(marked.map_batches(keep, batch_format="pyarrow").materialize())
        return tuple(parts)

    def streaming_split(
        self: Dataset, n: int, *, equal: bool = False, locality_hints: list[Any] | None = None
    ) -> list[DataIterator]:
        """Iterators for n consumers, in other processes too, that share each run of the dataset:
        each row goes to one of them.

        Args:
            n: how many.
            equal: all get equal numbers of rows, and up to n - 1 rows are left out.
            locality_hints: ids of nodes of the consumers.

        Returns:
            The iterators. All of them begin an epoch before any gets a row of it.
        """
        from sheaf.data.streaming.iterator import split_streaming

        if n < 1:
            raise ValueError(f"streaming_split: n={n}: want 1 consumer or more")
        if locality_hints is not None and len(locality_hints) != n:
            raise ValueError(
                f"streaming_split: {len(locality_hints)} locality_hints for {n} consumers"
            )
        return split_streaming(self, n, equal)


_TEST = "__is_test__"


def _mark(share: float, table: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    rows = table.num_rows
    return table.append_column(_TEST, pa.array(np.arange(rows) >= rows - round(rows * share)))


def _keep(wanted: bool, table: Any) -> Any:
    mask = table.column(_TEST)
    if not wanted:
        import pyarrow.compute as pc

        mask = pc.invert(mask)
    return table.filter(mask).drop_columns([_TEST])
