# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""TPUs: not in Sheaf; the names exist, and say so when they are used."""

from sheaf.util.tpu import get_current_pod_name, get_current_pod_worker_count

__all__ = ["get_current_pod_name", "get_current_pod_worker_count"]
