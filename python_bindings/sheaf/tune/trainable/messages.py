# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the driver and the process of a trial tell each other. No dataclasses: to import them takes
each new process longer than a short trial."""

from __future__ import annotations

from typing import Any

from sheaf.air.checkpoint import Checkpoint


class TrialSpec:
    """What a process is told when a trial begins in it.

    `decided`: the driver decides behind each result whether the trial goes on; else results are
    fetched many at a time, and `stop` is what ends it. `iteration` and `time_total_s`: of the
    checkpoint that it goes on from.
    """

    trial_id: str
    name: str
    experiment: str
    path: str  # Of the trial's folder,
    filesystem: Any  # inside of this; None: this machine's.
    config: dict[str, Any]
    resources: Any
    decided: bool
    stop: dict[str, float]
    checkpoint_frequency: int
    checkpoint_at_end: bool
    first_checkpoint: int  # The number of the next one.
    iteration: int = 0
    time_total_s: float = 0.0
    log_to_file: tuple[str, str] | None = None

    def __init__(self, **fields: Any):
        self.__dict__.update(fields)


class Place:
    """Where a trial runs. The driver knows the addresses of nodes: a process of its own that asks
    for them takes longer than a short trial."""

    def __init__(self, pid: int, hostname: str, node_id: str, log: str):
        self.pid, self.hostname, self.node_id = pid, hostname, node_id
        self.log = log  # The name of the file of its node that has what it prints.


class Row:
    """One report. `timestamp` in seconds since the epoch; `spent_s`: since the one before;
    `checkpoint`: the name of its folder, complete by now, and its number."""

    __slots__ = ("checkpoint", "metrics", "spent_s", "timestamp")

    def __init__(
        self,
        metrics: dict[str, Any],
        timestamp: float,
        spent_s: float,
        checkpoint: tuple[str, int] | None = None,
    ):
        self.metrics, self.timestamp, self.spent_s = metrics, timestamp, spent_s
        self.checkpoint = checkpoint

    def __reduce__(self) -> Any:  # Fewer bytes than by name.
        return Row, (self.metrics, self.timestamp, self.spent_s, self.checkpoint)


class Batch:
    """Reports in order, and whether the trial has ended behind them. `place`: with the first."""

    def __init__(self, rows: list[Row], ended: bool, place: Place | None = None):
        self.rows, self.ended, self.place = rows, ended, place


class Saved:
    """A checkpoint that the driver has asked for: the name of its folder and its number; None: a
    function saves only what it reports."""

    def __init__(self, checkpoint: tuple[str, int] | None):
        self.checkpoint = checkpoint


def checkpoint_of(path: str, filesystem: Any, name: str) -> Checkpoint:
    """The checkpoint of that name in a trial's folder."""
    return Checkpoint(f"{path}/{name}", filesystem)
