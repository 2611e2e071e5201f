# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""ZOOptSearch, which Sheaf does not have."""

from sheaf.tune.search.not_built import NotBuilt


class ZOOptSearch(NotBuilt):
    """Raises NotImplementedError, which names what to use instead."""

    instead = "OptunaSearch(sampler=optuna.samplers.CmaEsSampler()) or NevergradSearch"
