# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a run, or one trial of an experiment, has reached."""

from __future__ import annotations

import collections.abc
import csv
import dataclasses
import json
import os
import pickle
import time
from typing import Any

from sheaf.air import storage
from sheaf.air.checkpoint import Checkpoint
from sheaf.air.rows import flatten

RESULTS_FILE = "result.json"  # A line of JSON per report; the names of these files are Ray's.
PROGRESS_FILE = "progress.csv"
ERROR_FILE, PICKLED_ERROR_FILE = "error.txt", "error.pkl"


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened to the group of workers.

    Args:
        time: when, in seconds since the epoch.
        text: what, in words.
        reports: how many steps had been reported.
    """

    time: float
    text: str
    reports: int

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.time))
        return f"{clock}.{int(self.time % 1 * 1000):03d} {self.text}"


class ReportsFile(collections.abc.Sequence[dict[str, Any]]):
    """The reports that lie in a folder, read when they are first looked at. Not thread-safe.

    Args:
        path: of the folder.
        filesystem: that it is inside of; None: this machine's.
    """

    def __init__(self, path: str, filesystem: Any = None):
        self._path, self._filesystem = path, filesystem
        self._rows: list[dict[str, Any]] | None = None

    def _read(self) -> list[dict[str, Any]]:
        if self._rows is None:
            files = storage.files_of(self._filesystem)
            lines = (files.read(f"{self._path}/{RESULTS_FILE}") or b"").splitlines()
            self._rows = [json.loads(line) for line in lines if line.endswith(b"}")]
            if not lines:
                table = (files.read(f"{self._path}/{PROGRESS_FILE}") or b"").decode()
                self._rows = [dict(row) for row in csv.DictReader(table.splitlines())]
        return self._rows

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __len__(self) -> int:
        return len(self._read())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, collections.abc.Sequence) and list(other) == self._read()

    def __repr__(self) -> str:
        return repr(self._read())


@dataclasses.dataclass
class Result:
    """What a run, or one trial of an experiment, has reached.

    Args:
        metrics: what was reported last, or None.
        checkpoint: the newest durable one, or None.
        path: of the run's folder.
        error: what ended the run, or None.
        metrics_history: all reports, in order, each step once.
        best_checkpoints: those that were kept, with their metrics.
        events: what happened to the group, in order.
        filesystem: that `path` is inside of; None: this machine's.
    """

    metrics: dict[str, Any] | None
    checkpoint: Checkpoint | None
    path: str
    error: BaseException | None = None
    metrics_history: collections.abc.Sequence[dict[str, Any]] = dataclasses.field(
        default_factory=list
    )
    best_checkpoints: list[tuple[Checkpoint, dict[str, Any]]] = dataclasses.field(
        default_factory=list
    )
    events: list[Event] = dataclasses.field(default_factory=list)
    filesystem: Any = None

    @property
    def config(self) -> dict[str, Any] | None:
        """What the trial was called with, or None: it is not in `metrics`."""
        found: dict[str, Any] | None = (self.metrics or {}).get("config")
        return found

    @classmethod
    def from_path(cls, path: str | os.PathLike[str], storage_filesystem: Any = None) -> Result:
        """Reads what is in the folder of a trial.

        Args:
            path: of the folder, or a URI.
            storage_filesystem: one of pyarrow's or fsspec's, with `path` inside it; None: that of
                this machine, or of the URI.

        Returns:
            What was reached.

        Raises:
            RuntimeError: there is no such folder.
        """
        filesystem, inside = storage.resolve(path, storage_filesystem)
        files = storage.files_of(filesystem)
        names = files.names(inside)
        if not names:
            raise RuntimeError(f"{os.fspath(path)!r}: there is no folder with results of a trial")
        history = ReportsFile(inside, filesystem)
        kept = []
        for name in sorted(name for name in names if name.startswith("checkpoint_")):
            marker = files.read(f"{inside}/{name}/{storage.MARKER}")
            if marker:
                metrics = json.loads(marker).get("metrics", {})
                kept.append((Checkpoint(f"{inside}/{name}", filesystem), metrics))
        pickled = files.read(f"{inside}/{PICKLED_ERROR_FILE}")
        return cls(
            metrics=history[-1] if len(history) else None,
            checkpoint=kept[-1][0] if kept else None,
            path=inside,
            error=pickle.loads(pickled) if pickled else None,
            metrics_history=history,
            best_checkpoints=kept,
            filesystem=filesystem,
        )

    @property
    def metrics_dataframe(self) -> Any:
        """metrics_history as a DataFrame. ImportError: pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "metrics_dataframe needs pandas (pip install pandas); "
                "metrics_history is the same as a list"
            ) from error
        return pandas.DataFrame([flatten(row) for row in self.metrics_history])

    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """Finds the best of the kept checkpoints.

        Args:
            metric: the name of what they are compared by.
            mode: "max" or "min" is best.

        Returns:
            The checkpoint, or None: none has the metric.

        Raises:
            ValueError: another mode.
        """
        if mode not in ("max", "min"):
            raise ValueError(f"mode={mode!r}: want 'max' or 'min'")
        scored = [
            (row[metric], checkpoint) for checkpoint, row in self.best_checkpoints if metric in row
        ]
        if not scored:
            return None
        return (max if mode == "max" else min)(scored, key=lambda pair: pair[0])[1]
