# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Asking for nodes."""

from __future__ import annotations

from sheaf._internal import absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def request_resources(
    num_cpus: int | None = None,
    bundles: list[dict[str, Any]] | None = None,
    bundle_label_selectors: list[dict[str, str]] | None = None,
) -> None:
    """Accepted without effect: the size of the cluster is fixed."""


_INSTEAD = "nodes are started by `sheaf start`, by hand or by what runs the machines"
bootstrap_config = absent.function("autoscaler.sdk.bootstrap_config", _INSTEAD)
configure_logging = absent.function("autoscaler.sdk.configure_logging", _INSTEAD)
create_or_update_cluster = absent.function("autoscaler.sdk.create_or_update_cluster", _INSTEAD)
fillout_defaults = absent.function("autoscaler.sdk.fillout_defaults", _INSTEAD)
get_docker_host_mount_location = absent.function(
    "autoscaler.sdk.get_docker_host_mount_location", _INSTEAD
)
get_head_node_ip = absent.function("autoscaler.sdk.get_head_node_ip", _INSTEAD)
get_worker_node_ips = absent.function("autoscaler.sdk.get_worker_node_ips", _INSTEAD)
register_callback_handler = absent.function("autoscaler.sdk.register_callback_handler", _INSTEAD)
rsync = absent.function("autoscaler.sdk.rsync", _INSTEAD)
run_on_cluster = absent.function("autoscaler.sdk.run_on_cluster", _INSTEAD)
teardown_cluster = absent.function("autoscaler.sdk.teardown_cluster", _INSTEAD)
