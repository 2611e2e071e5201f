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
_TOP = 10
_log = logging.getLogger("sheaf.data")


@dataclasses.dataclass(frozen=True)
class Skewed:
    """Which partitions are far larger than others.

    Attributes:
        factor: over so many times the median,
        least_bytes: and over so many bytes.
    """

    factor: float = _MANY
    least_bytes: int = 256 << 20

    @staticmethod
    def of(context: Any) -> Skewed:
        """As a DataContext has it."""
        return Skewed(float(context.skewed_partition_factor), int(context.skewed_partition_bytes))

    def among(self, sizes: Any) -> list[int]:
        """The numbers of those that are, from the bytes of all."""
        large = (sizes > self.factor * np.median(sizes)) & (sizes > self.least_bytes)
        return np.flatnonzero(large).tolist()


def shares(bundles: Sequence[Bundle], most: int) -> list[list[Bundle]]:
    """Slices of bundles, as if they were one, in parts of about equal bytes, `most` or less."""
    total = sum(bundle.size_bytes for bundle in bundles)
    count = -(-total // max(1, most))
    parts: list[list[Bundle]] = [[]]
    before = 0  # Bytes of the bundles in front.
    for bundle in bundles:
        start = 0
        while start < bundle.num_rows:
            end = total * len(parts) // count - before  # Of this part, in this bundle.
            rows = bundle.num_rows
            if end < bundle.size_bytes and len(parts) < count:
                rows = max(start, bundle.num_rows * end // bundle.size_bytes)
            if rows > start:
                parts[-1].append(bundle.cut(start, rows))
            start = rows
            if start < bundle.num_rows:
                parts.append([])
        before += bundle.size_bytes
    return [part for part in parts if part]


@dataclasses.dataclass
class Counts:
    """What went to each partition of an exchange, and the most frequent keys.

    Attributes:
        split: partitions that several tasks shared.
        rows, sizes: rows and bytes of each partition; None: nothing came yet.
        top: keys that many rows have, with about how many.
    """

    rows: Any = None
    sizes: Any = None
    split: tuple[int, ...] = ()
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

    def unsplit(self, values: Any) -> Any:
        """Values of partitions, without those of partitions that were split."""
        return np.delete(values, self.split)

    def warn(self, name: str, skewed: Skewed) -> None:
        """Logs a warning where one reducer gets much more than others."""
        middle = _middle(self.sizes)
        largest = int(self.unsplit(self.sizes).max(initial=0))
        if largest > skewed.least_bytes and largest > skewed.factor * middle:
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
        advice: what may help; "": the partitions are even, or were split.
        split: how many partitions were so much larger than others that several tasks shared them.
    """

    name: str
    partitions: int
    rows: Spread
    bytes: Spread
    seconds: Spread
    top_keys: list[tuple[tuple[Any, ...], int]]
    stragglers: int
    advice: str
    split: int = 0

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
        if self.split:
            lines.append(f"* Partitions that several tasks shared: {self.split}")
        even = "The other partitions are even." if self.split else "The partitions are even."
        lines.append(f"* {self.advice or even}")
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
    if any(Spread.of(counts.unsplit(of)).ratio > _MANY for of in (counts.rows, counts.sizes)):
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
    count, split = len(counts.sizes), len(counts.split)
    return ExchangeSkew(name, count, rows, sizes, seconds, top, slow, advice, split)


def _shown(value: Any) -> Any:
    """Integers are hashed as the floating-point numbers that they equal."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
