# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets mixed by weights, and split at random without being made first."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sheaf.data.exchanges import partition as rows_to
from sheaf.data.schema import check_columns
from sheaf.data.slices import rows_of
from sheaf.data.task_context import TaskContext

Dataset = Any  # Which has this among its bases.
_PARTS = 1 << 20  # Of hashes: a share is so many of them.


class MixStoppingCondition(enum.Enum):
    """When a mix of datasets ends."""

    STOP_ON_SHORTEST = "stop_on_shortest"  # With the first that ends; the others are cut.
    STOP_ON_LONGEST_DROP = "stop_on_longest_drop"  # With the last.


class Mixing:
    """The methods of Dataset that mix and split by chance."""

    def mix(
        self: Dataset,
        *other: Dataset,
        weights: list[float] | None = None,
        stopping_condition: MixStoppingCondition = MixStoppingCondition.STOP_ON_LONGEST_DROP,
    ) -> Dataset:
        """The rows of several datasets, which take turns so that their numbers of rows keep to
        weights, as far as blocks allow. All are made first.

        Args:
            *other: the others.
            weights: one above 0 for each, this one's first; None: all alike.
            stopping_condition: whether it ends with the first that ends, or with the last.

        Returns:
            A dataset whose blocks are there.
        """
        datasets = [self, *other]
        shares = [1.0] * len(datasets) if weights is None else list(map(float, weights))
        if len(shares) != len(datasets):
            raise ValueError(f"mix: {len(shares)} weights for {len(datasets)} datasets")
        if any(not share > 0 for share in shares):
            raise ValueError(f"mix: weights={weights}: want numbers above 0")
        condition = MixStoppingCondition(stopping_condition)
        given = [one._run() for one in datasets]
        mixed = _in_turns(given, shares, condition == MixStoppingCondition.STOP_ON_SHORTEST)
        return self._materialized(mixed or given[0][:1], self._context)

    def streaming_train_test_split(
        self: Dataset,
        test_size: float,
        *,
        split_type: str = "random",
        hash_column: str | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> tuple[Dataset, Dataset]:
        """A part to train with and one to test with, each made when it is consumed.

        Args:
            test_size: the share of rows to test with, between 0 and 1.
            split_type: "random", or "hash": equal values of a column go to one side.
            hash_column: that column.
            seed: of "random"; None: one is drawn now. Both parts see the same rows in the same
                blocks, so the dataset must give those each time.
            **options: as of map.

        Returns:
            Both.
        """
        if not 0 < test_size < 1:
            raise ValueError(
                f"streaming_train_test_split: test_size={test_size}: want between 0 and 1"
            )
        if split_type not in ("random", "hash"):
            raise ValueError(
                f"streaming_train_test_split: split_type={split_type!r}: want 'random' or 'hash'"
            )
        if (split_type == "hash") != (hash_column is not None):
            raise ValueError(
                "streaming_train_test_split: hash_column goes with "
                "split_type='hash', and only with it"
            )
        if seed is None:
            seed = int(np.random.default_rng().integers(1 << 62))
        parts = []
        for test in (False, True):
            keep = functools.partial(_side, test, float(test_size), hash_column, seed)
            parts.append(
                self._project("TrainTestSplit", keep, _same, options, keeps_rows=False, alone=True)
            )
        return parts[0], parts[1]


def _in_turns(given: list[list[Any]], shares: Sequence[float], shortest: bool) -> list[Any]:
    """Bundles of several datasets: always that of which the fewest rows have come by its share."""
    taken = [0.0] * len(given)
    places = [0] * len(given)
    limits = [float("inf")] * len(given)
    if shortest:
        turns = min(rows_of(bundles) / share for bundles, share in zip(given, shares))
        limits = [int(turns * share + 1e-9) for share in shares]
    out: list[Any] = []
    while True:
        left = [n for n, bundles in enumerate(given) if places[n] < len(bundles)]
        left = [n for n in left if taken[n] < limits[n]]
        if not left:
            return out
        turn = min(left, key=lambda n: taken[n] / shares[n])
        bundle = given[turn][places[turn]]
        places[turn] += 1
        if shortest:
            room = int(limits[turn] - taken[turn])
            bundle = bundle if bundle.num_rows <= room else bundle.cut(0, room)
        taken[turn] += bundle.num_rows
        out.append(bundle)


def _same(schema: Any) -> Any:
    return schema


def _side(
    test: bool, share: float, column: str | None, seed: int, tables: Iterator[Any]
) -> Iterator[Any]:
    random = np.random.default_rng([seed, TaskContext.current().task_idx])
    for table in tables:
        if column is None:
            chosen = pa.array(random.random(table.num_rows) < share)
        else:
            check_columns([column], table.column_names, "streaming_train_test_split")
            chosen = pa.array(rows_to.numbers(table, [column], _PARTS) < share * _PARTS)
        yield table.filter(chosen if test else pc.invert(chosen))
