# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What an execution took: per operator its tasks, blocks, rows, bytes and times."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from sheaf.data.exchanges.skew import Counts, ExchangeSkew, report

_LATE = 32  # Blocks from which the pace of an operator is told.


@dataclasses.dataclass
class OperatorStats:
    """One operator.

    Attributes:
        name: of it.
        tasks: that ended.
        task_s: seconds of each task, with the time in which its output waited.
        wall_s, cpu_s, rows, sizes: of each block.
    """

    name: str
    tasks: int = 0
    task_s: list[float] = dataclasses.field(default_factory=list)
    wall_s: list[float] = dataclasses.field(default_factory=list)
    cpu_s: list[float] = dataclasses.field(default_factory=list)
    rows: list[int] = dataclasses.field(default_factory=list)
    sizes: list[int] = dataclasses.field(default_factory=list)

    def text(self, number: int) -> str:
        """As stats() shows it."""
        if not self.rows:
            return f"Operator {number} {self.name}: {self.tasks} tasks executed, 0 blocks produced"
        lines = [
            f"Operator {number} {self.name}: {self.tasks} tasks executed, {len(self.rows)} blocks "
            f"produced in {sum(self.wall_s):.2f}s"
        ]
        for what, values in (("Remote wall time", self.wall_s), ("Remote cpu time", self.cpu_s)):
            lines.append(f"* {what}: {_seconds(values)}")
        lines.append(f"* Output num rows per block: {_numbers(self.rows)}")
        lines.append(f"* Output size bytes per block: {_numbers(self.sizes)}")
        slow = _stragglers(self.task_s)
        if slow:
            lines.append(f"* Stragglers: {slow}")
        return "\n".join(lines)


def _seconds(values: list[float]) -> str:
    def shown(s: float) -> str:
        return f"{s * 1e6:.2f}us" if s < 1e-3 else f"{s * 1e3:.2f}ms" if s < 1 else f"{s:.2f}s"

    mean = sum(values) / len(values)
    return (
        f"{shown(min(values))} min, {shown(max(values))} max, {shown(mean)} mean, "
        f"{shown(sum(values))} total"
    )


def _numbers(values: list[int]) -> str:
    total = sum(values)
    return f"{min(values)} min, {max(values)} max, {total // len(values)} mean, {total} total"


def _stragglers(task_s: list[float]) -> str:
    if len(task_s) < 4:
        return ""
    middle = sorted(task_s)[len(task_s) // 2]
    slow = [s for s in task_s if s > 10 * middle and s > 1]
    return (
        f"{len(slow)} tasks took over 10 x the median of {middle:.2f}s, up to {max(slow):.2f}s"
        if slow
        else ""
    )


class ExecutionStats:
    """All operators of one execution.

    Args:
        names: of the operators.
    """

    def __init__(self, names: list[str]) -> None:
        self.operators = [OperatorStats(name) for name in names]
        self._began = time.perf_counter()
        self.total_s = 0.0
        self.peak_bytes = 0
        self.errored_blocks = 0
        self.exchanges: list[tuple[OperatorStats, Counts]] = []
        self.caches: list[tuple[Any, int]] = []  # That are read, with what they had recomputed.

    def output(self, operator: int, header: Any) -> None:
        """A block has come."""
        found = self.operators[operator]
        found.wall_s.append(header.wall_s)
        found.cpu_s.append(header.cpu_s)
        found.rows.append(header.num_rows)
        found.sizes.append(header.size_bytes)

    def wall_s_of_output(self, operator: int) -> float | None:
        """How long the operator makes a block, of late; None: it has made none yet."""
        latest = self.operators[operator].wall_s[-_LATE:]
        return sum(latest) / len(latest) if latest else None

    def task_ended(self, operator: int, seconds: float) -> None:
        """A task has ended after so many seconds."""
        self.operators[operator].tasks += 1
        self.operators[operator].task_s.append(seconds)

    def finish(self, machine: Any) -> None:
        """The execution has ended."""
        self.total_s = time.perf_counter() - self._began
        self.peak_bytes = machine.budget.peak
        self.errored_blocks = len(machine.errors)
        for state, own in zip(machine.states, self.operators, strict=True):
            # A method of an exchange has counted what went to its partitions.
            arrange = state.spec.arrange
            counts = getattr(getattr(arrange, "__self__", None), "counts", None)
            if counts is None or counts.sizes is None:
                continue
            if getattr(arrange, "__name__", "") == "arrange":  # Not that of samples.
                self.exchanges.append((own, counts))

    def skew(self) -> list[ExchangeSkew]:
        """As skew() gives it."""
        return [report(own.name, counts, own.task_s) for own, counts in self.exchanges]

    def text(self) -> str:
        """As stats() shows it."""
        shown = [stats for stats in self.operators if stats.tasks or stats.rows]
        parts = [stats.text(number) for number, stats in enumerate(shown, 1)]
        parts += [f"Read: {cache.text(before)}" for cache, before in self.caches]
        parts.append(
            "Dataset execution:\n"
            f"* Total time: {self.total_s:.2f}s\n"
            f"* Peak of blocks held: {self.peak_bytes / (1 << 20):.1f} MiB"
            + (f"\n* Blocks left out for errors: {self.errored_blocks}" * bool(self.errored_blocks))
        )
        return "\n\n".join(parts)
