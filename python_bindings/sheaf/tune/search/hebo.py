# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""HEBOSearch, which Sheaf does not have."""

from sheaf.tune.search.not_built import NotBuilt


class HEBOSearch(NotBuilt):
    """Raises NotImplementedError, which names what to use instead."""

    instead = "OptunaSearch(sampler=optuna.samplers.GPSampler()) or BayesOptSearch"
