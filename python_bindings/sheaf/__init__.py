# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sheaf: remote functions, actors and shared objects, with the names of Ray Core.

Programs that were written for Ray say `import sheaf as ray`.
"""

from __future__ import annotations

import importlib
import os

import sheaf._internal.extension  # noqa: F401  # isort: skip (first)
from sheaf import reference_methods
from sheaf._core import ObjectRef, get, put
from sheaf._version import __ray_version__, __version__  # noqa: F401
from sheaf.actor import ActorHandle, kill, method
from sheaf.cluster import available_resources, cancel, cluster_resources, get_gpu_ids, nodes
from sheaf.decorator import remote
from sheaf.ids import (
    ActorClassID,
    ActorID,
    FunctionID,
    JobID,
    NodeID,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from sheaf.lifecycle import init, is_initialized, shutdown
from sheaf.object_ref import DynamicObjectRefGenerator, ObjectRefGenerator, wait
from sheaf.runtime_context import get_runtime_context

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any

    from sheaf.named_actors import get_actor
    from sheaf.util.timeline import timeline

__path__.append(os.path.join(__path__[0], "_ray"))  # Which says why.

ObjectID = ObjectRef
reference_methods.add()
LOCAL_MODE, SCRIPT_MODE, WORKER_MODE = 2, 0, 1
_SUBMODULES = (
    "_common",
    "_private",
    "_raylet",
    "actor",
    "air",
    "autoscaler",
    "client_builder",
    "cloudpickle",
    "cluster_utils",
    "cross_language",
    "data",
    "exceptions",
    "experimental",
    "ids",
    "internal",
    "job_config",
    "job_submission",
    "logging_config",
    "object_ref",
    "ray_constants",
    "remote_function",
    "runtime_context",
    "runtime_env",
    "state",
    "train",
    "tune",
    "types",
    "util",
    "worker",
)
_WHERE = {  # What is imported when it is first asked for.
    "get_actor": "named_actors",
    "timeline": "util.timeline",
    "client": "client_builder",
    "ClientBuilder": "client_builder",
    "cpp_function": "cross_language",
    "java_function": "cross_language",
    "java_actor_class": "cross_language",
    "Language": "cross_language",
    "LoggingConfig": "logging_config",
}

__all__ = [
    "ActorClassID",
    "ActorHandle",
    "ActorID",
    "DynamicObjectRefGenerator",
    "FunctionID",
    "JobID",
    "NodeID",
    "ObjectID",
    "ObjectRef",
    "ObjectRefGenerator",
    "PlacementGroupID",
    "TaskID",
    "UniqueID",
    "WorkerID",
    "available_resources",
    "cancel",
    "cluster_resources",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "remote",
    "shutdown",
    "timeline",
    "wait",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"sheaf.{name}")
    if name in _WHERE:
        return getattr(importlib.import_module(f"sheaf.{_WHERE[name]}"), name)
    if name == "logger":
        import logging

        return logging.getLogger("sheaf")
    raise AttributeError(f"sheaf has no '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBMODULES, *_WHERE, "logger"})
