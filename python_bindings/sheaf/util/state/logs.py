# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the workers and nodes of the cluster have printed: the files in the sessions' logs/."""

from __future__ import annotations

import fnmatch
import os
import re
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
) -> dict[str, list[str]]:
    """Lists the log files of a node.

    Args:
        address: without effect: it is this process's cluster.
        node_id: the node, as sheaf.nodes() names it; None: that at `node_ip`, or this one.
        node_ip: the address of the node.
        glob_filter: what names must fit, as "worker-*.err"; None: all.
        timeout: seconds that the node may take.

    Returns:
        The names by what wrote them: raylet, worker, driver, other.

    Raises:
        ValueError: there is no such node, or it did not answer.
    """
    del address
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
    encoding: str | None = "utf-8",
    errors: str | None = "strict",
    submission_id: str | None = None,
    attempt_number: int = 0,
    _interval: float | None = None,
    filter_ansi_code: bool = False,
) -> Iterator[str]:
    """Gives the lines of a log file: of a named one, or that of an actor, a running task or a
    worker.

    Args:
        address: without effect: it is this process's cluster.
        node_id: the node that has the file, as sheaf.nodes() names it; None: that at `node_ip`, or
            this one.
        node_ip: the address of the node.
        filename: as list_logs names it.
        actor_id: instead of a name: the actor's process.
        task_id: instead of a name: the process that runs the task.
        pid: instead of a name: the worker.
        follow: not in Sheaf.
        tail: how many of the last lines; below 0: all.
        timeout: seconds that the node may take.
        suffix: "out" or "err", of the file of a process.
        encoding: without effect.
        errors: without effect.
        submission_id: without effect.
        attempt_number: without effect.
        filter_ansi_code: leaves out the codes of colours.

    Yields:
        A line at a time, with its end.

    Raises:
        ValueError: nothing names a file, or there is no such file, process or node.
        NotImplementedError: follow.
    """
    del address
    if follow:
        raise NotImplementedError(
            "get_log(follow=True) is not in Sheaf: what workers print reaches the "
            "driver as it comes"
        )
    if filename is None:
        node_id, filename = _file_of(actor_id, task_id, pid, suffix)
    text = _on_node(_text, (filename,), node_id, node_ip, timeout)
    if text is not None and filter_ansi_code:
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
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
