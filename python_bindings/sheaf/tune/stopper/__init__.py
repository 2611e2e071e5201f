# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Stoppers: what ends trials, or the experiment, by what is reported."""

from sheaf.tune.stopper.plateau import ExperimentPlateauStopper, TrialPlateauStopper
from sheaf.tune.stopper.stopper import (
    CombinedStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    Stopper,
    TimeoutStopper,
)

__all__ = [
    "CombinedStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
]
