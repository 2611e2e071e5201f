# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The checkpoints of a trial: which stay, which of them must not go yet."""

from __future__ import annotations

import dataclasses
from typing import Any

from sheaf.air.checkpoint import Checkpoint
from sheaf.air.config import CheckpointConfig


@dataclasses.dataclass
class Kept:
    """A complete checkpoint with the result that it belongs to. pins: how many may restore from it,
    so that it stays."""

    checkpoint: Checkpoint
    result: dict[str, Any]
    number: int
    pins: int = 0


class KeptCheckpoints:
    """Of one trial, oldest first. The files themselves are the driver's to delete."""

    def __init__(self, config: CheckpointConfig | None = None):
        self.config = config or CheckpointConfig()
        self.all: list[Kept] = []
        self.next_number = 0

    @property
    def newest(self) -> Kept | None:
        """What a restart goes on from."""
        return self.all[-1] if self.all else None

    def find(self, checkpoint: Checkpoint) -> Kept | None:
        """The one with these files."""
        return next((kept for kept in self.all if kept.checkpoint == checkpoint), None)

    def add(self, checkpoint: Checkpoint, result: dict[str, Any], number: int) -> Kept:
        """A new one is complete, with the result so far."""
        known = self.find(checkpoint)
        if known is not None:
            self.all.remove(known)
        self.all.append(Kept(checkpoint, result, number, known.pins if known else 0))
        self.next_number = max(self.next_number, number + 1)
        return self.all[-1]

    def surplus(self) -> list[Kept]:
        """Takes out those that shall be deleted now: neither the newest, nor among the best, nor
        pinned."""
        bound = self.config.num_to_keep
        if bound is None or len(self.all) <= bound:
            return []
        worst = sorted(self.all, key=self._score)[: len(self.all) - bound]
        going = [kept for kept in worst if not kept.pins and kept is not self.newest]
        for kept in going:
            self.all.remove(kept)
        return going

    def _score(self, kept: Kept) -> tuple[float, int]:
        name = self.config.checkpoint_score_attribute
        if name is None:
            return 0.0, kept.number
        value = kept.result.get(name.removeprefix("min-"))
        if not isinstance(value, (int, float)) or value != value:
            return float("-inf"), kept.number
        least = self.config.checkpoint_score_order == "min" or name.startswith("min-")
        return -value if least else value, kept.number

    def best(self) -> list[tuple[Checkpoint, dict[str, Any]]]:
        """The best, as many as shall be kept, with their results, oldest first."""
        bound = self.config.num_to_keep or len(self.all)
        best = sorted(self.all, key=self._score)[-bound:]
        return [(kept.checkpoint, kept.result) for kept in self.all if kept in best]
