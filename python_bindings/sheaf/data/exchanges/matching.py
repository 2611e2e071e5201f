# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Which rows of two tables match by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.aggregates.groups import coded_rows


class Matches:
    """Rows of a left and a right table whose keys are equal. NULL equals nothing, NaN is NaN.

    Rows come in the order of the left table, those that match one left row in that of the right.

    Args:
        left, right: the keys of both, columns of types that kernels compare, in pairs of one type.
    """

    def __init__(self, left: Sequence[Any], right: Sequence[Any]):
        rows = len(left[0])
        both = [pa.chunked_array([*_chunks(a), *_chunks(b)], a.type) for a, b in zip(left, right)]
        ids, self._count = coded_rows(both)
        for column in both:
            if column.null_count:
                ids[pc.is_null(column).to_numpy()] = -1
        self._left, self._right = ids[:rows], ids[rows:]

    def matched_left(self) -> Any:
        """Whether each left row matches any right row."""
        return _known(self._left, np.bincount(self._right[self._right >= 0], minlength=self._count))

    def matched_right(self) -> Any:
        """Whether each right row matches any left row."""
        return _known(self._right, np.bincount(self._left[self._left >= 0], minlength=self._count))

    def pairs(self, keep_left: bool, keep_right: bool) -> tuple[Any, Any]:
        """The rows of the joined table.

        Args:
            keep_left, keep_right: whether a row that matches none is in it; such of the right come
                behind all others.

        Returns:
            (left, right): the number of the row of each side, -1 where it has none.
        """
        left, right = self._matching(keep_left)
        if keep_right:
            alone = np.flatnonzero(~self.matched_right())
            left = np.concatenate([left, np.full(len(alone), -1)])
            right = np.concatenate([right, alone])
        return left, right

    def _matching(self, keep_left: bool) -> tuple[Any, Any]:
        there = np.flatnonzero(self._right >= 0)
        there_ids = self._right[there]
        row_of = np.full(self._count + 1, -1)  # Of id -1 it is the last.
        row_of[there_ids] = there
        if np.array_equal(row_of[there_ids], there):  # Keys of the right side are unique.
            right = row_of[self._left]
            if keep_left:
                return np.arange(len(right)), right
            left = np.flatnonzero(right >= 0)
            return left, right[left]
        counts = np.bincount(there_ids, minlength=self._count)
        per_row = np.append(counts, 0)[self._left]
        in_order = there[np.argsort(there_ids, kind="stable")]
        starts = np.append(np.cumsum(counts) - counts, 0)[self._left]
        rows = np.maximum(per_row, 1) if keep_left else per_row
        left = np.repeat(np.arange(len(rows)), rows)
        within = np.arange(len(left)) - np.repeat(np.cumsum(rows) - rows, rows)
        places = np.repeat(starts, rows) + within
        if not keep_left:
            return left, in_order[places]
        lonely = per_row[left] == 0
        places[lonely] = 0
        return left, np.where(lonely, -1, in_order[places])


def _chunks(column: Any) -> list[Any]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _known(ids: Any, counts: Any) -> Any:
    return np.append(counts > 0, False)[ids]
