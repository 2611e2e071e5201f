# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What has become of an experiment."""

from __future__ import annotations

from sheaf.tune.analysis.experiment_analysis import ExperimentAnalysis

__all__ = ["ExperimentAnalysis"]
