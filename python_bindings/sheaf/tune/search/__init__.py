# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Search algorithms: what proposes configurations.

Searchers on top of other packages lie in modules of their own (`sheaf.tune.search.optuna` and so
on) and import the package when one is made.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from sheaf.tune.search.basic_variant import BasicVariantGenerator
from sheaf.tune.search.concurrency_limiter import ConcurrencyLimiter
from sheaf.tune.search.repeater import Repeater
from sheaf.tune.search.searcher import Searcher
from sheaf.tune.search.variant_generator import grid_search

__all__ = [
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "Repeater",
    "Searcher",
    "create_searcher",
    "grid_search",
]

_CLASSES = {
    "variant_generator": ("basic_variant", "BasicVariantGenerator"),
    "random": ("basic_variant", "BasicVariantGenerator"),
    "ax": ("ax", "AxSearch"),
    "hyperopt": ("hyperopt", "HyperOptSearch"),
    "bayesopt": ("bayesopt", "BayesOptSearch"),
    "bohb": ("bohb", "TuneBOHB"),
    "nevergrad": ("nevergrad", "NevergradSearch"),
    "optuna": ("optuna", "OptunaSearch"),
    "zoopt": ("zoopt", "ZOOptSearch"),
    "hebo": ("hebo", "HEBOSearch"),
}


def create_searcher(search_alg: str, **kwargs: Any) -> Any:
    """Makes a search algorithm by name.

    Args:
        search_alg: "random", "optuna", "hyperopt", "bayesopt", "nevergrad", "ax", ...
        kwargs: arguments of its class; what the class does not know is left out, so that
            algorithms can be exchanged by name alone.

    Returns:
        The search algorithm.

    Raises:
        ValueError: there is none of this name.
    """
    name = search_alg.lower()
    if name not in _CLASSES:
        raise ValueError(f"The `search_alg` argument must be one of {list(_CLASSES)}. Got: {name}")
    module, class_name = _CLASSES[name]
    cls = getattr(importlib.import_module(f"{__name__}.{module}"), class_name)
    known = inspect.signature(cls).parameters
    return cls(**{key: value for key, value in kwargs.items() if key in known})
