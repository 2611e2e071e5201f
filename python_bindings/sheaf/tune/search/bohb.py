# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""TuneBOHB, which Sheaf does not have."""

from sheaf.tune.search.not_built import NotBuilt


class TuneBOHB(NotBuilt):
    """Raises NotImplementedError, which names what to use instead."""

    instead = (
        "ASHAScheduler with OptunaSearch(sampler=optuna.samplers.TPESampler(multivariate=True))"
    )
