# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of the files in an experiment's folder, and its journal read from any storage."""

from __future__ import annotations

from typing import Any

from sheaf.air import storage
from sheaf.tune.execution.journal import read_records

JOURNAL = "experiment.journal"
SEARCHER, SCHEDULER = "searcher-state-{}", "scheduler-state.pkl"
STATE = "state"  # In the searcher's folder; beside it what wrapped searchers add.
POPULATION = "pbt_"  # What the names of population based training's files begin with.


def second_of(path: str) -> str:
    """Where a storage has the journal once more: see Mirror."""
    return f"{path}.second"


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
