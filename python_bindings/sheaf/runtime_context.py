# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where the calling code runs: job, node, task, actor."""

from __future__ import annotations

import os

from sheaf import _core, ids, lifecycle
from sheaf._internal import actor_class
from sheaf.actor import ActorHandle

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


class RuntimeContext:
    """Where the calling code runs. Answers for the moment, and for the thread or coroutine, in
    which a method is called. Thread-safe.
    """

    def get_job_id(self) -> str:
        """Returns the job, as 8 hexadecimal digits."""
        return f"{_core.context()['job']:08x}"

    def get_node_id(self) -> str:
        """Returns the node, as sheaf.nodes() names it: 56 hexadecimal digits."""
        return ids.node_id(_core.context()["node"])

    def get_worker_id(self) -> str:
        """Returns the process, as 16 hexadecimal digits."""
        context = _core.context()
        return f"{context['node']:08x}{context['process']:08x}"

    def get_task_id(self) -> str | None:
        """Returns the id of the running call, or None outside of calls."""
        return _core.context().get("task")

    def get_task_name(self) -> str | None:
        """Returns the name of the running call, or None outside of calls."""
        return _core.context().get("name")

    def get_task_function_name(self) -> str | None:
        """Returns the same as get_task_name."""
        return _core.context().get("name")

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
        return next((row["name"] for row in _core.actors() if row["actor_id"] == actor), "")

    def get_placement_group_id(self) -> str | None:
        """Returns the placement group of the running call, or None."""
        return _core.context()["group"] or None

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """Whether calls made here go to the same placement group."""
        return _core.context()["captures"]

    def get_assigned_resources(self) -> dict[str, float]:
        """Returns the amounts that the running call holds, by resource."""
        return _core.context()["resources"]

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """Returns the accelerators that the running call holds: {"GPU": ["0"]}."""
        return {"GPU": [str(i) for i in _core.context()["gpu_ids"]]}

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
            raise RuntimeError("current_actor is asked for in a method of an actor")
        return ActorHandle(_core.own_actor(), actor_class.own)

    def is_canceled(self) -> bool:
        """Returns whether the running call was cancelled."""
        return _core.cancel_requested()

    def get_node_labels(self) -> dict[str, str]:
        """Returns the labels of this node."""
        own = _core.context()["node"]
        return next((dict(row["labels"]) for row in _core.nodes() if row["node"] == own), {})

    def get_session_name(self) -> str:
        """Returns the name of the session of this node."""
        return os.path.basename(_core.session_directory())

    def get_temp_dir(self) -> str:
        """Returns the directory that the session lies in."""
        return os.path.dirname(_core.session_directory())

    @property
    def namespace(self) -> str:
        """Where named actors of this job are found."""
        return _core.context()["namespace"]

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor has restarted. AssertionError: outside of actors."""
        actor = self.get_actor_id()
        assert actor, "was_current_actor_reconstructed is asked for in a method of an actor"
        return any(row["restarts"] > 0 for row in _core.actors() if row["actor_id"] == actor)

    @property
    def gcs_address(self) -> str:
        """The session directory of the node."""
        return lifecycle._context.address_info["address"] if lifecycle._context else ""

    get_resource_ids = get_assigned_resources

    @property
    def job_id(self) -> ids.JobID:
        """The job, as an id."""
        return ids.JobID(self.get_job_id())

    @property
    def node_id(self) -> ids.NodeID:
        """The node, as an id."""
        return ids.NodeID(self.get_node_id())

    @property
    def task_id(self) -> ids.TaskID:
        """The running call, as an id. AssertionError: outside of calls."""
        task = self.get_task_id()
        assert task, "task_id is asked for in a task or a method of an actor"
        return ids.TaskID(task)

    @property
    def actor_id(self) -> ids.ActorID:
        """The actor, as an id. AssertionError: outside of actors."""
        actor = self.get_actor_id()
        assert actor, "actor_id is asked for in a method of an actor"
        return ids.ActorID(actor)

    @property
    def current_placement_group_id(self) -> ids.PlacementGroupID:
        """The placement group of the running call, as an id; nil: there is none."""
        group = self.get_placement_group_id()
        return ids.PlacementGroupID(group) if group else ids.PlacementGroupID.nil()

    def get(self) -> dict[str, Any]:
        """Returns job_id, node_id and namespace in a dict; in calls also task_id, and in actors
        actor_id."""
        found: dict[str, Any] = {
            "job_id": self.job_id,
            "node_id": self.node_id,
            "namespace": self.namespace,
        }
        if self.get_task_id():
            found["task_id"] = self.task_id
        if self.get_actor_id():
            found["actor_id"] = self.actor_id
        return found


def get_runtime_context() -> RuntimeContext:
    """Returns what tells where the calling code runs: its job, node, process, task and actor.

    Its methods raise RuntimeError or another error of init where no cluster can be joined.
    """
    return RuntimeContext()
