# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is made ready around a training loop in each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sheaf.train.context import TrainContext


class BackendConfig:
    """What is made ready around a training loop in each worker: here, nothing.

    Subclasses join a process group or the like. They are sent to the workers, a copy for each epoch
    of the group.
    """

    def on_start(self, context: TrainContext) -> None:
        """Called before the loop, in its thread, each time that the group is formed.

        Args:
            context: the place of the worker in its group.
        """

    def on_stop(self, context: TrainContext) -> None:
        """Called from another thread while the loop shall stop: ends what it may be waiting in.

        Args:
            context: the place of the worker in its group.
        """

    def on_end(self, context: TrainContext) -> None:
        """Called behind the loop, in its thread, also when it failed.

        Args:
            context: the place of the worker in its group.
        """
