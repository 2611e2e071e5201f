# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is made ready around a training loop in each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sheaf.train.context import TrainContext


class BackendConfig:
    """Nothing. Subclasses join a process group or the like; they are sent to the workers."""

    def on_start(self, context: TrainContext) -> None:
        """Before the loop, in each worker, each time that the group is formed."""

    def on_stop(self, context: TrainContext) -> None:
        """Called from another thread while the loop shall stop: ends what it may be waiting in."""

    def on_end(self, context: TrainContext) -> None:
        """Behind the loop, also when it failed."""
