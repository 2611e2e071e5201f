# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments and their trials."""

from __future__ import annotations

from sheaf.tune.experiment.experiment import Experiment
from sheaf.tune.experiment.trial import Trial

__all__ = ["Experiment", "Trial"]
