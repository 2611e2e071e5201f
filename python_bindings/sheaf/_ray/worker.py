# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Ray programs look up in `ray.worker`."""

from sheaf import SCRIPT_MODE, WORKER_MODE
from sheaf._internal import absent

__all__ = ["SCRIPT_MODE", "WORKER_MODE", "get_dashboard_url"]

get_dashboard_url = absent.function(
    "worker.get_dashboard_url", "the metrics page is there: sheaf status prints its URL"
)
