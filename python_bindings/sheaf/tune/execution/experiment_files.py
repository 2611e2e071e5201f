# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of the files in an experiment's folder, and its journal read from any storage."""

from __future__ import annotations

from typing import Any

from sheaf.air import storage
from sheaf.tune.execution.journal import read_records

JOURNAL = "experiment.journal"
BEFORE = "experiment.journal.before"  # Of the experiment that had the folder before.
SEARCHER, SCHEDULER = "searcher-state-{}", "scheduler-state.pkl"
STOPPER = "stopper-state.pkl"
STATE = "state"  # In the searcher's folder; beside it what wrapped searchers add.
POPULATION = "pbt_"  # What the names of population based training's files begin with.


def second_of(path: str) -> str:
    """Where a storage has the journal once more: see Mirror."""
    return f"{path}.second"


def set_aside(filesystem: Any, path: str) -> None:
    """A new experiment begins in the folder, so that a restore finds it alone: the journal of one
    that was there is kept under another name, its states go, the files of its trials stay."""
    files = storage.files_of(filesystem)
    _, data = read_journal(filesystem, path)
    if data:
        files.write(f"{path}/{BEFORE}", data)
    for name in files.names(path):  # In order: the journal goes before the states that it names.
        stale = name.startswith((JOURNAL, SEARCHER.format(""))) or name in (SCHEDULER, STOPPER)
        if stale and name != BEFORE:
            files.remove(f"{path}/{name}")


def read_journal(filesystem: Any, path: str) -> tuple[list[Any], bytes]:
    """The records of the journal in the folder, and their bytes; none: there is no experiment."""
    files = storage.files_of(filesystem)
    data = files.read(f"{path}/{JOURNAL}") or b""
    records, good = read_records(data)
    if filesystem is not None and (not data or good < len(data)):  # A copy was cut short.
        other = files.read(second_of(f"{path}/{JOURNAL}")) or b""
        if read_records(other)[0]:
            data, (records, good) = other, read_records(other)
    return records, data[:good]
