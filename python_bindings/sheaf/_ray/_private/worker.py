# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What libraries look up in `ray._private.worker`: the calls of the module `ray`, and an object
that tells where this process is."""

from __future__ import annotations

from sheaf import (
    LOCAL_MODE,
    SCRIPT_MODE,
    WORKER_MODE,
    _core,
    cancel,
    get,
    get_gpu_ids,
    init,
    is_initialized,
    kill,
    lifecycle,
    put,
    remote,
    shutdown,
    wait,
)
from sheaf.ids import ActorID, JobID, NodeID, TaskID, WorkerID
from sheaf.named_actors import get_actor
from sheaf.remote_function import RemoteFunction
from sheaf.runtime_context import RuntimeContext, get_runtime_context

__all__ = [
    "LOCAL_MODE",
    "SCRIPT_MODE",
    "WORKER_MODE",
    "BaseContext",
    "RayContext",
    "RemoteFunctionNoArgs",
    "cancel",
    "get",
    "get_actor",
    "get_dashboard_url",
    "get_gpu_ids",
    "global_worker",
    "init",
    "is_initialized",
    "kill",
    "put",
    "remote",
    "shutdown",
    "wait",
]

BaseContext = RayContext = lifecycle.Context
RemoteFunctionNoArgs = RemoteFunction
RESTORE_WORKER_MODE, SPILL_WORKER_MODE = 3, 4
_global_node = None  # The node is a process of its own.

get_dashboard_url = lifecycle.get_dashboard_url


def _context() -> RuntimeContext:
    """Where this process is. AttributeError: nowhere; asking shall not start a node."""
    if not _core.is_initialized():
        raise AttributeError("this process is not connected: call init() first")
    return get_runtime_context()


class Worker:
    """This process, as a part of the cluster. Answers for the moment in which it is asked."""

    node = None  # The node is a process of its own.

    @property
    def connected(self) -> bool:
        """Whether the process has joined a cluster."""
        return _core.is_initialized()

    @property
    def mode(self) -> int | None:
        """SCRIPT_MODE in a driver, WORKER_MODE in a worker; None outside of a cluster."""
        if not _core.is_initialized():
            return None
        return WORKER_MODE if _core.is_worker() else SCRIPT_MODE

    def check_connected(self) -> None:
        """Raises RaySystemError outside of a cluster."""
        if not _core.is_initialized():
            from sheaf.exceptions import RaySystemError  # Where it is raised.

            raise RaySystemError(
                "Ray has not been started yet. You can start Ray with 'ray.init()'."
            )

    @property
    def worker_id(self) -> bytes:
        """The process, as bytes."""
        return WorkerID(_context().get_worker_id()).binary()

    @property
    def current_job_id(self) -> JobID:
        """The job; nil outside of a cluster."""
        if not _core.is_initialized():
            return JobID.nil()
        return JobID(get_runtime_context().get_job_id())

    @property
    def current_node_id(self) -> NodeID:
        """The node."""
        return NodeID(_context().get_node_id())

    @property
    def current_task_id(self) -> TaskID:
        """The running call; nil outside of calls."""
        found = get_runtime_context().get_task_id() if _core.is_initialized() else None
        return TaskID(found) if found else TaskID.nil()

    @property
    def actor_id(self) -> ActorID:
        """The actor; nil outside of actors."""
        found = get_runtime_context().get_actor_id() if _core.is_initialized() else None
        return ActorID(found) if found else ActorID.nil()

    @property
    def namespace(self) -> str:
        """Where named actors of this job are found."""
        return _context().namespace

    @property
    def runtime_env(self) -> str:
        """The runtime environment, as JSON."""
        return _context().get_runtime_env_string()


global_worker = Worker()
