# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the cluster knows about itself: listings, summaries, and the logs of its processes."""

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
    list_tasks,
    list_workers,
    worker_id,
)
from sheaf.util.state.logs import get_log, list_logs
from sheaf.util.state.rows import Row
from sheaf.util.state.summaries import summarize_actors, summarize_objects, summarize_tasks

__all__ = [
    "Row",
    "get_actor",
    "get_job",
    "get_log",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_jobs",
    "list_logs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
    "worker_id",
]
