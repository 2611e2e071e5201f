# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A trainer as what trials run: any object with fit() and _with_config(config, report)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sheaf.air import session
from sheaf.air.checkpoint import Checkpoint
from sheaf.tune.execution.placement_groups import PlacementGroupFactory


def as_function(trainer: Any) -> Callable[[dict[str, Any]], None]:
    """The function that a trial of the trainer runs. TypeError: it cannot be given a
    configuration."""
    if not hasattr(trainer, "_with_config"):
        raise TypeError(
            f"trainable={trainer!r}: want a function, a class derived from Trainable, or a trainer "
            "of sheaf.train"
        )

    def train(config: dict[str, Any]) -> None:
        def told(metrics: dict[str, Any], checkpoint: Checkpoint | None) -> None:
            session.current().report(metrics, checkpoint, None, False)

        context = session.current().context()
        checkpoint = session.current().checkpoint
        trainer._with_config(config, context.get_trial_dir(), checkpoint, told).fit()

    train.__name__ = type(trainer).__name__
    bundles, strategy = trainer._bundles()
    factory = PlacementGroupFactory([{}, *bundles], strategy)
    factory.reserved_by_itself = True  # By the trainer, in each trial.
    train._resources = factory  # type: ignore[attr-defined]
    return train
