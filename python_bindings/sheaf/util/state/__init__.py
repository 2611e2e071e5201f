# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the cluster knows about itself: listings, summaries, and the logs of its processes."""

from sheaf._internal import absent
from sheaf.util.state.events import list_cluster_events
from sheaf.util.state.listings import (
    get_actor,
    get_job,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    get_worker,
    list_actors,
    list_jobs,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_workers,
)
from sheaf.util.state.logs import get_log, list_logs
from sheaf.util.state.rows import Row, worker_id
from sheaf.util.state.summaries import summarize_actors, summarize_objects, summarize_tasks
from sheaf.util.state.tasks import list_tasks
from sheaf.util.state.train_runs import get_train_run, list_train_runs

StateApiClient = absent.a_class(
    "util.state.StateApiClient", "list_actors() and the like of sheaf.util.state ask it"
)
list_runtime_envs = absent.function(
    "util.state.list_runtime_envs", "list_workers() has the processes of each environment"
)

__all__ = [
    "Row",
    "StateApiClient",
    "get_actor",
    "get_job",
    "get_log",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_train_run",
    "get_worker",
    "list_actors",
    "list_cluster_events",
    "list_jobs",
    "list_logs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_runtime_envs",
    "list_tasks",
    "list_train_runs",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
    "worker_id",
]
