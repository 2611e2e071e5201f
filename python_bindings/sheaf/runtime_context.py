# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where the calling code runs: job, node, task, actor."""

from __future__ import annotations

import os

from sheaf import _core, ids, lifecycle
from sheaf._internal import actor_class, exported
from sheaf.actor import ActorHandle

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any

_WORKERS_ONLY = "This method is only available when the process is a worker, and this is a driver."
_OTHER_ACCELERATORS = ("TPU", "HPU", "NPU", "neuron_cores", "RBLN", "FURIOSA", "MBLT", "TTNPU")


class RuntimeContext:
    """Where the calling code runs. Answers for the moment, and for the thread or coroutine, in
    which a method is called. Thread-safe.
    """

    def get_job_id(self) -> str:
        """Returns the job, as 8 hexadecimal digits."""
        return f"{_joined('Job ID')['job']:08x}"

    def get_node_id(self) -> str:
        """Returns the node, as sheaf.nodes() names it: 56 hexadecimal digits."""
        return ids.node_id(_joined("Node ID")["node"])

    def get_worker_id(self) -> str:
        """Returns the process, as 16 hexadecimal digits."""
        context = _joined("Worker ID")
        return f"{context['node']:08x}{context['process']:08x}"

    def get_task_id(self) -> str | None:
        """Returns the id of the running call, or None outside of calls."""
        return _core.context().get("task")

    def get_task_name(self) -> str | None:
        """Returns the name of the running call, or None outside of calls."""
        return _core.context().get("name")

    def get_task_function_name(self) -> str | None:
        """Returns "module.function" or "module.Class.method" of the running call, whatever its name
        is, or None outside of calls."""
        context = _core.context()
        return exported.name_of(context.get("function", "")) or context.get("name")

    def get_attempt_number(self) -> int:
        """Returns how often the running call was tried before: 0 at first."""
        return _core.context().get("attempt", 0)

    def get_actor_id(self) -> str | None:
        """Returns the id of the actor, or None outside of actors."""
        return _core.context().get("actor") or None

    def get_actor_name(self) -> str | None:
        """Returns the name of the actor, "" if it has none, or None outside of actors."""
        actor = self.get_actor_id()
        if actor is None:
            return None
        return next((row["name"] for row in _core.actors([("actor_id", actor)])), "")

    def get_placement_group_id(self) -> str | None:
        """Returns the placement group of the running call, or None."""
        return _core.context()["group"] or None

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether calls made here go to the same placement group."""
        return _core.context()["captures"]

    def get_assigned_resources(self) -> dict[str, float]:
        """Returns the amounts that the running call holds, by resource. AssertionError: in a
        driver, which holds none."""
        assert _core.is_worker(), _WORKERS_ONLY
        return _core.context()["resources"]

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """Returns the accelerators that the running call holds, by kind: {"GPU": ["0"]}. Of the
        other kinds Sheaf knows amounts alone."""
        gpus = [str(i) for i in _core.context()["gpu_ids"]]
        return {"GPU": gpus, **{kind: [] for kind in _OTHER_ACCELERATORS}}

    def get_runtime_env_string(self) -> str:
        """Returns the runtime environment, as JSON."""
        import json

        return json.dumps(self.runtime_env, sort_keys=True)

    @property
    def runtime_env(self) -> dict[str, Any]:
        """The runtime environment, a RuntimeEnv; directories by the names under which the cluster
        keeps them."""
        from sheaf import runtime_env  # For those who ask.

        return runtime_env.described(
            runtime_env.entries_of_worker()
            if _core.is_worker()
            else lifecycle.environment_entries()
        )

    @property
    def current_actor(self) -> Any:
        """The handle of the actor that this is called in. RuntimeError: outside of actors."""
        if not self.get_actor_id():
            raise RuntimeError("current_actor: This method is only available in an actor.")
        return ActorHandle(_core.own_actor(), actor_class.own)

    def is_canceled(self) -> bool:
        """Returns whether the running call was cancelled. RuntimeError: in a driver."""
        if not _core.is_worker():
            raise RuntimeError(_WORKERS_ONLY)
        return _core.cancel_requested()

    def get_node_labels(self) -> dict[str, str]:
        """Returns the labels of this node."""
        own = _core.context()["node"]
        return next((dict(row["labels"]) for row in _core.nodes() if row["node"] == own), {})

    def get_session_name(self) -> str:
        """Returns the name of the session of this node."""
        _joined("Session name")
        return os.path.basename(_core.session_directory())

    def get_temp_dir(self) -> str:
        """Returns the directory that the session lies in."""
        return os.path.dirname(_core.session_directory())

    @property
    def worker(self) -> Any:
        """What ray._private.worker.global_worker is."""
        import importlib

        return importlib.import_module("sheaf._private.worker").global_worker

    @property
    def namespace(self) -> str:
        """Where named actors of this job are found."""
        return _core.context()["namespace"]

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor has restarted. AssertionError: outside of actors."""
        assert self.get_actor_id(), (
            "was_current_actor_reconstructed is asked for in a method of an actor"
        )
        return actor_class.restarted

    @property
    def gcs_address(self) -> str:
        """The session directory of the node."""
        return _core.session_directory()

    get_resource_ids = get_assigned_resources

    @property
    def current_placement_group_id(self) -> ids.PlacementGroupID:
        """The placement group of the running call, as an id; one that names none outside of
        groups."""
        group = self.get_placement_group_id()
        return ids.PlacementGroupID(group) if group else ids.PlacementGroupID.nil()

    @property
    def node_id(self) -> ids.NodeID:
        """The node, as an id."""
        return ids.NodeID(self.get_node_id())

    @property
    def job_id(self) -> ids.JobID:
        """The job, as an id."""
        return ids.JobID(self.get_job_id())

    @property
    def task_id(self) -> ids.TaskID | None:
        """The running call, as an id. AssertionError: in a driver."""
        assert _core.is_worker(), _WORKERS_ONLY
        task = self.get_task_id()
        return ids.TaskID(task) if task else None

    @property
    def actor_id(self) -> ids.ActorID | None:
        """The actor, as an id, or None outside of actors. AssertionError: in a driver."""
        assert _core.is_worker(), _WORKERS_ONLY
        actor = self.get_actor_id()
        return ids.ActorID(actor) if actor else None

    def get(self) -> dict[str, Any]:
        """Returns job_id, node_id and namespace in a dict, and in workers task_id and actor_id
        where there is one."""
        out = {"job_id": self.job_id, "node_id": self.node_id, "namespace": self.namespace}
        if _core.is_worker():
            found = {"task_id": self.task_id, "actor_id": self.actor_id}
            out.update({name: id for name, id in found.items() if id is not None})
        return out


def _joined(what: str) -> dict[str, Any]:
    """_core.context(); RuntimeError where this process has left its cluster."""
    if not _core.is_initialized():
        raise RuntimeError(f"{what} is not available because Ray has not been initialized.")
    return _core.context()


_only = RuntimeContext()


def get_runtime_context() -> RuntimeContext:
    """Returns what tells where the calling code runs: its job, node, process, task and actor.

    It joins a cluster, as init() does, where this process is in none; its methods raise
    RuntimeError after that was left.
    """
    lifecycle.init_by_default()
    return _only
