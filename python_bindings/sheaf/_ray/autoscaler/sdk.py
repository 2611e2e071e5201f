# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Asking for nodes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def request_resources(
    num_cpus: int | None = None, bundles: list[dict[str, Any]] | None = None
) -> None:
    """Accepted without effect: the size of the cluster is fixed."""
