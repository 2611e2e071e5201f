# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""AxSearch, which Sheaf does not have."""

from sheaf.tune.search.not_built import NotBuilt


class AxSearch(NotBuilt):
    """Raises NotImplementedError, which names what to use instead."""

    instead = "OptunaSearch(sampler=optuna.samplers.GPSampler()) or BayesOptSearch"
