# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the workers and nodes of the cluster have printed: the files in the sessions' logs/."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from typing import Any

from sheaf import _core, cluster, ids
from sheaf.util import each_node
from sheaf.util.state import listings

_GROUPS = {"node": "raylet", "worker": "worker", "job": "driver"}  # By how file names begin.


def list_logs(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    glob_filter: str | None = None,
    timeout: float = 30,
    **others: Any,
) -> dict[str, list[str]]:
    """The names of the log files of a node (None: this one) that fit the pattern, by what wrote
    them."""
    del address, others
    names = _on_node(_names, (), node_id, node_ip, timeout)
    out: dict[str, list[str]] = {}
    for name in names:
        if glob_filter is None or fnmatch.fnmatch(name, glob_filter):
            out.setdefault(
                _GROUPS.get(name.replace("-", ".").partition(".")[0], "other"), []
            ).append(name)
    return out


def get_log(
    address: str | None = None,
    node_id: str | None = None,
    node_ip: str | None = None,
    filename: str | None = None,
    actor_id: str | None = None,
    task_id: str | None = None,
    pid: int | None = None,
    follow: bool = False,
    tail: int = -1,
    timeout: float = 30,
    suffix: str = "out",
    **others: Any,
) -> Iterator[str]:
    """The lines of a log file: named, or that of an actor, of a running task, or of a worker by its
    pid. tail: only so many of the last; suffix: "out" or "err". ValueError: none of these is given,
    or there is no such file."""
    del address, others
    if follow:
        raise NotImplementedError(
            "get_log(follow=True) is not in Sheaf: what workers print reaches the "
            "driver as it comes"
        )
    if filename is None:
        node_id, filename = _file_of(actor_id, task_id, pid, suffix)
    text = _on_node(_text, (filename,), node_id, node_ip, timeout)
    if text is None:
        raise ValueError(
            f"there is no log {filename!r} there; list_logs(node_id=...) names those of a node"
        )
    lines = text.splitlines(keepends=True)
    yield from lines if tail < 0 else lines[len(lines) - min(tail, len(lines)) :]


def _file_of(
    actor_id: str | None, task_id: str | None, pid: int | None, suffix: str
) -> tuple[str, str]:
    if actor_id is not None:
        actor = listings.get_actor(actor_id)
        if actor is None or not actor.pid:
            raise ValueError(f"get_log: there is no actor {actor_id} with a process")
        pid = actor.pid
    worker = None
    if task_id is not None:
        task = listings.get_task(task_id)
        worker = task and task.worker_id
        if not worker:
            raise ValueError(f"get_log: there is no running task {task_id}")
    elif pid is None:
        raise ValueError("get_log needs filename, actor_id, task_id or pid")
    for row in _core.workers():
        if row["pid"] == pid or (
            worker is not None and listings.worker_id(row["worker"]) == worker
        ):
            return ids.node_id(row["node"]), f"worker-{row['worker']}.{suffix}"
    raise ValueError(f"get_log: there is no worker with pid {pid}")


def _on_node(
    function: Any, args: tuple[Any, ...], node_id: str | None, node_ip: str | None, timeout: float
) -> Any:
    if node_id is None and node_ip is not None:
        node_id = next(
            (
                row["NodeID"]
                for row in cluster.nodes()
                if row["Alive"] and row["NodeManagerAddress"] == node_ip
            ),
            None,
        )
        if node_id is None:
            raise ValueError(f"node_ip={node_ip!r}: no node has this address")
    wanted = node_id or ids.node_id(_core.context()["node"])
    found, _ = each_node.answers(function, *args, timeout=timeout, only=wanted)
    if wanted not in found:
        raise ValueError(f"the node {wanted} did not answer, or there is none")
    return found[wanted]


def _folder() -> str:
    return os.path.join(_core.session_directory(), "logs")


def _names() -> list[str]:
    return sorted(os.listdir(_folder()))


def _text(name: str) -> str | None:
    if os.path.basename(name) != name:
        raise ValueError(f"filename={name!r}: want a name without directories")
    try:
        with open(os.path.join(_folder(), name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None
