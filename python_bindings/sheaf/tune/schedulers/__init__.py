# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Schedulers: what decides which trials go on."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from sheaf.tune.schedulers.async_hyperband import ASHAScheduler, AsyncHyperBandScheduler
from sheaf.tune.schedulers.distribute_resources import (
    DistributeResources,
    DistributeResourcesToTopJob,
)
from sheaf.tune.schedulers.hyperband import HyperBandForBOHB, HyperBandScheduler
from sheaf.tune.schedulers.median_stopping_rule import MedianStoppingRule
from sheaf.tune.schedulers.pbt import PopulationBasedTraining
from sheaf.tune.schedulers.pbt_replay import PopulationBasedTrainingReplay
from sheaf.tune.schedulers.resource_changing import ResourceChangingScheduler
from sheaf.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "DistributeResources",
    "DistributeResourcesToTopJob",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ResourceChangingScheduler",
    "TrialScheduler",
    "create_scheduler",
]

_CLASSES = {
    "fifo": "FIFOScheduler",
    "async_hyperband": "AsyncHyperBandScheduler",
    "asynchyperband": "AsyncHyperBandScheduler",
    "median_stopping_rule": "MedianStoppingRule",
    "medianstopping": "MedianStoppingRule",
    "hyperband": "HyperBandScheduler",
    "hb_bohb": "HyperBandForBOHB",
    "pbt": "PopulationBasedTraining",
    "pbt_replay": "PopulationBasedTrainingReplay",
    "pb2": "PB2",
    "resource_changing": "ResourceChangingScheduler",
}


def create_scheduler(scheduler: str, **kwargs: Any) -> Any:
    """Makes a scheduler by name.

    Args:
        scheduler: "fifo", "async_hyperband", "median_stopping_rule", "hyperband", "pbt", "pb2", ...
        kwargs: arguments of its class; what the class does not know is left out, so that
            schedulers can be exchanged by name alone.

    Returns:
        The scheduler.

    Raises:
        ValueError: there is none of this name.
    """
    name = scheduler.lower()
    if name not in _CLASSES:
        raise ValueError(f"The `scheduler` argument must be one of {list(_CLASSES)}. Got: {name}")
    module = importlib.import_module(f"{__name__}.pb2" if name == "pb2" else __name__)
    cls = getattr(module, _CLASSES[name])
    known = inspect.signature(cls).parameters
    return cls(**{key: value for key, value in kwargs.items() if key in known})
