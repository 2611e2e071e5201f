# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Ray programs look up in `ray.experimental`."""

from __future__ import annotations

from typing import Any

_WHERE = {
    "get_local_object_locations": "locations",
    "get_object_locations": "locations",
    "set_resource": "dynamic_resources",
}
_RDT = (
    "deregister_nixl_memory",
    "register_nixl_memory",
    "register_nixl_memory_pool",
    "register_tensor_transport",
    "set_nixl_cuda_stream",
    "set_target_device_for_ref",
    "set_target_for_ref",
    "wait_tensor_freed",
)


def __getattr__(name: str) -> Any:
    import importlib  # What lies here is imported when it is first asked for.

    if name in _WHERE:
        return getattr(importlib.import_module(f"sheaf.experimental.{_WHERE[name]}"), name)
    if name in _RDT:
        return getattr(importlib.import_module("sheaf.experimental.rdt"), name)
    raise AttributeError(f"sheaf.experimental has no '{name}'")


def __dir__() -> list[str]:
    return sorted([*_WHERE, *_RDT])
