# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A run's folder: the history of its reports and its checkpoints, and what of them counts after a
crash.

    metrics.jsonl            a line per report, in order
    checkpoint_NNNNNN/       complete, with a marker that holds how many reports lead to it
    .incomplete-NNNNNN-E/    being uploaded, or left by a crash

Reports behind the newest checkpoint are made again when a run goes on, so they are cut off first.
Not thread-safe.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from sheaf.air import storage
from sheaf.air.checkpoint import Checkpoint
from sheaf.air.config import CheckpointConfig
from sheaf.air.rows import encode

_HISTORY = "metrics.jsonl"


@dataclasses.dataclass
class Kept:
    """A complete checkpoint: its files, how many reports lead to it, the last of them."""

    checkpoint: Checkpoint
    reports: int
    metrics: dict[str, Any]


class RunFiles:
    """Of the run's folder `path` in `filesystem`. OSError: the storage fails."""

    def __init__(self, filesystem: Any, path: str, config: CheckpointConfig):
        self._files = storage.files_of(filesystem)
        self._filesystem, self.path, self._config = filesystem, path, config
        self.history: list[dict[str, Any]] = []
        self.kept: list[Kept] = []  # Oldest first.

    def open(self) -> None:
        """Makes the folder, or takes up what a run of the same name has left: complete checkpoints
        and the reports up to the newest."""
        self._files.make_folder(self.path)
        self._remove_incomplete()
        for name in self._files.names(self.path):
            marker = (
                None
                if name.startswith(".") or name == _HISTORY
                else self._files.read(f"{self.path}/{name}/{storage.MARKER}")
            )
            if marker:
                known = json.loads(marker)
                self.kept.append(Kept(self._checkpoint(name), known["reports"], known["metrics"]))
        self.kept.sort(key=lambda kept: kept.reports)
        lines = (self._files.read(f"{self.path}/{_HISTORY}") or b"").splitlines()
        self.history = [
            json.loads(line) for line in lines[: self.kept[-1].reports if self.kept else 0]
        ]
        self._write_history()

    def record(
        self, row: dict[str, Any], temporary: str | None, name: str | None
    ) -> Checkpoint | None:
        """One more report; with the folder that its checkpoint was uploaded to, the checkpoint is
        durable on return."""
        self.history.append(row)
        if isinstance(self._files, storage.LocalFiles):
            with open(f"{self.path}/{_HISTORY}", "a", encoding="utf-8") as file:
                file.write(encode(row) + "\n")
                if temporary is not None:
                    file.flush()
                    os.fsync(file.fileno())
        elif temporary is not None:
            self._write_history()
        if temporary is None:
            return None
        reports = len(self.history)
        name = name or f"checkpoint_{reports:06d}"
        path = f"{self.path}/{name}"
        self._files.write(
            f"{temporary}/{storage.MARKER}", encode({"reports": reports, "metrics": row}).encode()
        )
        for old in [kept for kept in self.kept if kept.checkpoint.path == path]:
            self._remove(old)
        self._files.publish(temporary, path)
        made = self._checkpoint(name)
        self.kept.append(Kept(made, reports, row))
        self._keep_best()
        return made

    def rollback(self) -> int:
        """Forgets the reports behind the newest checkpoint, and what was being uploaded; gives how
        many stay. No loop runs now."""
        self._remove_incomplete()
        reports = self.kept[-1].reports if self.kept else 0
        if len(self.history) > reports:
            del self.history[reports:]
            self._write_history()
        return reports

    def close(self) -> None:
        """The whole history is in the folder, and nothing that is not complete. No loop runs
        now."""
        self._remove_incomplete()
        self._write_history()

    def _keep_best(self) -> None:
        bound, by = self._config.num_to_keep, self._config.checkpoint_score_attribute
        sign = 1 if self._config.checkpoint_score_order == "max" else -1
        while bound is not None and len(self.kept) > bound:
            older = self.kept[:-1]  # The newest is what a restart goes on from.
            self._remove(
                min(older, key=lambda kept: sign * kept.metrics.get(by, -sign * float("inf")))
                if by
                else older[0]
            )

    def _remove_incomplete(self) -> None:
        for name in self._files.names(self.path):
            if name.startswith((".incomplete-", ".going-")):
                self._files.remove(f"{self.path}/{name}")

    def _remove(self, kept: Kept) -> None:
        self.kept.remove(kept)
        self._files.remove(kept.checkpoint.path)

    def _checkpoint(self, name: str) -> Checkpoint:
        return Checkpoint(f"{self.path}/{name}", self._filesystem)

    def _write_history(self) -> None:
        self._files.write(
            f"{self.path}/{_HISTORY}", "".join(encode(row) + "\n" for row in self.history).encode()
        )
