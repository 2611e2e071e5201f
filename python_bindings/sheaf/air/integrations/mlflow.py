# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where Ray has its integration with MLflow: see sheaf.tune.logger.mlflow."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"sheaf.air.integrations.mlflow has no '{name}'")
    return getattr(importlib.import_module(f"sheaf.{'tune'}.logger.mlflow"), name)
