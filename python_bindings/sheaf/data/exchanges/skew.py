# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How unequal the partitions of an exchange are, and what helps."""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from sheaf.data.operators import Bundle

_MANY = 4.0  # Times the median.
_LARGE_BYTES = 256 << 20  # Smaller partitions are worth no warning.
_TOP = 10
_log = logging.getLogger("sheaf.data")


@dataclasses.dataclass
class Counts:
    """What went to each partition of an exchange, and the most frequent keys.

    Attributes:
        rows, sizes: rows and bytes of each partition; None: nothing came yet.
        top: keys that many rows have, with about how many.
    """

    rows: Any = None
    sizes: Any = None
    top: collections.Counter[tuple[Any, ...]] = dataclasses.field(
        default_factory=collections.Counter
    )

    def add_top(self, bundles: Sequence[Bundle]) -> None:
        """Counts the frequent keys of map tasks."""
        for bundle in bundles:
            for key, rows in bundle.metadata.extra.top:
                self.top[key] += rows

    def set_all(self, bundles: Sequence[Bundle]) -> None:
        """Counts all that went to partitions."""
        self.add_top(bundles)
        self.rows = np.sum([np.diff(b.metadata.extra.offsets) for b in bundles], axis=0)
        self.sizes = np.sum([b.metadata.extra.sizes for b in bundles], axis=0)

    def warn(self, name: str) -> None:
        """Logs a warning where one reducer gets much more than others."""
        largest, middle = int(self.sizes.max()), _middle(self.sizes)
        if largest >= _LARGE_BYTES and largest > _MANY * middle:
            _log.warning(
                "%s: one of %d partitions has %.0f MiB, the median %.0f MiB, and one task gets it. "
                "Dataset.skew() says which keys are frequent",
                name,
                len(self.sizes),
                largest / (1 << 20),
                middle / (1 << 20),
            )


def _middle(values: Any) -> float:
    """The median of what is not empty."""
    some = values[values > 0]
    return float(np.median(some)) if len(some) else 0.0


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median, 99th percentile, greatest, and how many times the median that is, of what is not
    empty."""

    p50: float
    p99: float
    max: float
    ratio: float

    @staticmethod
    def of(values: Any) -> Spread:
        """That of some numbers."""
        values = np.asarray(values, float)
        some = values[values > 0]
        if not len(some):
            return Spread(0.0, 0.0, 0.0, 1.0)
        p50, p99, most = (float(value) for value in np.percentile(some, [50, 99, 100]))
        return Spread(p50, p99, most, most / p50)


@dataclasses.dataclass(frozen=True)
class ExchangeSkew:
    """How unequal the partitions of one exchange were.

    Attributes:
        name: of the operator.
        partitions: how many there were.
        rows, bytes: a Spread over partitions, of what map tasks gave to each.
        seconds: a Spread over reducing tasks.
        top_keys: the most frequent keys, each a tuple, with about how many rows they have; of an
            aggregation rows of partial results.
        stragglers: how many reducing tasks took over 4 times the median, and over 1 s.
        advice: what may help; "": the partitions are even.
    """

    name: str
    partitions: int
    rows: Spread
    bytes: Spread
    seconds: Spread
    top_keys: list[tuple[tuple[Any, ...], int]]
    stragglers: int
    advice: str

    def __str__(self) -> str:
        def line(what: str, of: Spread, unit: float = 1.0, digits: int = 0) -> str:
            values = [f"{value / unit:,.{digits}f}" for value in (of.p50, of.p99, of.max)]
            return f"* {what}: {values[0]} p50, {values[1]} p99, {values[2]} max ({of.ratio:.1f} x)"

        lines = [
            f"{self.name}: {self.partitions} partitions",
            line("Rows", self.rows),
            line("MiB", self.bytes, 1 << 20, 1),
            line("Seconds of a task", self.seconds, 1.0, 2),
        ]
        if self.top_keys:
            shown = [f"{', '.join(map(repr, key))} ({rows:,})" for key, rows in self.top_keys]
            lines.append(f"* Frequent keys (rows, about): {'; '.join(shown)}")
        if self.stragglers:
            lines.append(f"* Stragglers: {self.stragglers} tasks")
        lines.append(f"* {self.advice or 'The partitions are even.'}")
        return "\n".join(lines)


def report(name: str, counts: Counts, task_s: Sequence[float]) -> ExchangeSkew:
    """What Dataset.skew() says of one exchange.

    Args:
        name: of the operator.
        counts: of its partitions.
        task_s: seconds of its reducing tasks.

    Returns:
        The report.
    """
    rows, sizes, seconds = Spread.of(counts.rows), Spread.of(counts.sizes), Spread.of(task_s)
    top = [
        (tuple(_shown(value) for value in key), int(many))
        for key, many in counts.top.most_common(_TOP)
    ]
    slow = sum(1 for s in task_s if s > 1.0 and s > _MANY * seconds.p50)
    advice = ""
    if rows.ratio > _MANY or sizes.ratio > _MANY:
        total = max(1, int(np.sum(counts.rows)))
        if top and top[0][1] > total // 10:
            key, share = ", ".join(map(repr, top[0][0])), 100 * top[0][1] // total
            advice = (
                f"The key {key} has {share} % of all rows, and one task gets them. Add a column of "
                "a few random numbers to the keys (salt) and put the results together, or "
                "aggregate where you map groups now; of a join make the other side small "
                "(DataContext.broadcast_join_bytes)."
            )
        else:
            advice = "Some keys have many more rows than others: more partitions share them better."
    return ExchangeSkew(name, len(counts.sizes), rows, sizes, seconds, top, slow, advice)


def _shown(value: Any) -> Any:
    """Integers are hashed as the floating-point numbers that they equal."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
