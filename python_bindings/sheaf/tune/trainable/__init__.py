# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What trials run."""

from __future__ import annotations

from sheaf.tune.trainable.trainable import Trainable
from sheaf.tune.trainable.util import with_parameters, with_resources

__all__ = ["Trainable", "with_parameters", "with_resources"]
