# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the processes of the cluster have printed: the files in the logs/ of its nodes' sessions."""

from __future__ import annotations

import codecs
import glob as globbing
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from sheaf import _core, cluster, ids
from sheaf.util.state import tasks

_CODES = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_PERIOD_S = 0.25
_PAUSE_S = 0.05  # Of a node that is busy.
_SILENCE_S = 60.0  # Of a node whose log is followed.
_LONGEST = 1 << 20  # Bytes of a line; of a longer one there are several.


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
        The names by what wrote them: worker_out, worker_err, driver, raylet, gcs_server, dashboard,
        internal.

    Raises:
        ValueError: there is no such node, or it did not answer.
    """
    del address
    node = _node(node_id, node_ip)
    answer = _ask(timeout, _core.log_list, node, glob_filter or "")
    out: dict[str, list[str]] = {}
    for name, group in answer["files"]:
        out.setdefault(group, []).append(os.fsdecode(name))
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
    """Gives the lines of a log, wherever in the cluster it is: of a named file, or of an actor, a
    task, a worker or a submitted job. Of a file that was rotated the older parts belong to it, but
    those of a named file that is not followed are files of their own.

    Args:
        address: without effect: it is this process's cluster.
        node_id: the node that has the file, as sheaf.nodes() names it; None: that at `node_ip`, or
            this one. With `pid`: the node that it runs on, where several have one of that number.
        node_ip: the address of the node.
        filename: as list_logs names it.
        actor_id: instead of a name: the actor's process.
        task_id: instead of a name: the process that runs the task, or ran it.
        pid: instead of a name: the worker.
        follow: goes on with what is written from then on, until who writes it has ended, or its
            node has died, or the file is gone, which the last line says; a line says it when the
            file was emptied.
        tail: how many of the last lines; below 0: all, of the last 64 MiB.
        timeout: seconds that a node may take to answer.
        suffix: "out" or "err", of the file of a process.
        encoding: of the file; None: the lines are bytes.
        errors: what becomes of bytes that are not in that encoding, as bytes.decode has it.
        submission_id: instead of a name: the job that was submitted under this id.
        attempt_number: of the task.
        filter_ansi_code: leaves out the codes of colours.

    Yields:
        A line at a time, with its end; one that is longer than a MiB in several.

    Raises:
        ValueError: nothing names a file, or there is no such file, process or node, or it did not
            answer.
        UnicodeDecodeError: the file is not in `encoding`, and `errors` is "strict".
    """
    del address
    if suffix not in ("out", "err"):
        raise ValueError(f"suffix={suffix!r}: want 'out' or 'err'")
    node, name = _place(
        filename, submission_id, actor_id, task_id, attempt_number, pid, node_id, node_ip, suffix
    )
    decoder = codecs.getincrementaldecoder(encoding)(errors or "strict") if encoding else None
    only_file = filename is not None
    pieces = _pieces(node, os.fsencode(name), tail, only_file, follow, timeout, _interval)
    for line in _lines(pieces):
        if filter_ansi_code:
            line = _CODES.sub(b"", line)
        yield decoder.decode(line) if decoder is not None else line  # type: ignore[misc]


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(rest) >= _LONGEST:
            yield rest
            rest = b""
    if rest:
        yield rest


def _pieces(
    node: int,
    name: bytes,
    tail: int,
    only_file: bool,
    follow: bool,
    timeout: float,
    interval: float | None,
) -> Iterator[bytes]:
    piece = _ask(timeout, _core.log_end, node, name, tail, only_file)
    if tail < 0 and piece["offset"] and not only_file:  # Which older parts are before.
        yield f"[sheaf: the first {piece['offset']} bytes of this log are left out]\n".encode()
    yield piece["bytes"]
    ends_line = not piece["bytes"] or piece["bytes"].endswith(b"\n")
    until = piece["next"] + piece["left"]
    while follow or piece["next"] < until:
        before = piece
        limit = _SILENCE_S if follow else timeout
        if not _core.is_initialized():  # A question would join anew.
            yield _words("this process has left the cluster", ends_line)
            return
        try:
            piece = _ask(limit, _core.log_read, node, name, before["next"], before["mark"])
        except ValueError as error:
            if not follow:
                raise
            yield _words(str(error), ends_line)
            return
        if piece["anew"] and not follow:
            return
        if piece["anew"]:
            yield _words("this log was begun anew", ends_line)
        elif piece["offset"] > before["next"]:
            lost = piece["offset"] - before["next"]
            yield _words(f"{lost} bytes of this log are not kept any more", ends_line)
        yield piece["bytes"]
        if piece["bytes"]:
            ends_line = piece["bytes"].endswith(b"\n")
        elif follow and piece["ended"]:
            yield _words("who wrote this log has ended", ends_line)
            return
        elif follow:
            time.sleep(_PERIOD_S if interval is None else interval)


def _words(text: str, ends_line: bool) -> bytes:
    return f"{'' if ends_line else chr(10)}[sheaf: {text}]\n".encode()


def _ask(timeout: float, question: Any, *args: Any) -> dict[str, Any]:
    """Asks until the answer is none that says to come again."""
    deadline = time.monotonic() + timeout
    while (answer := question(*args))["again"] and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    if answer["error"]:
        raise ValueError(answer["error"])
    return dict(answer)


def _node(node_id: str | None, node_ip: str | None) -> int:
    """The number of the node; of several at one address this one, else the first. 0: none is
    named."""
    if node_id is not None:
        found = [row["node"] for row in _core.nodes() if ids.node_id(row["node"]) == node_id]
        if not found:
            raise ValueError(f"node_id={node_id!r}: there is no such node")
        return int(found[0])
    if node_ip is None:
        return 0
    here = ids.node_id(_core.context()["node"])
    named = [
        row["NodeID"]
        for row in cluster.nodes()
        if row["Alive"] and row["NodeManagerAddress"] == node_ip
    ]
    if not named:
        raise ValueError(f"node_ip={node_ip!r}: no node has this address")
    return _node(here if here in named else named[0], None)


def _place(
    filename: str | None,
    submission_id: str | None,
    actor_id: str | None,
    task_id: str | None,
    attempt: int,
    pid: int | None,
    node_id: str | None,
    node_ip: str | None,
    suffix: str,
) -> tuple[int, str]:
    """The node and the name of its file."""
    if filename is not None:
        return _node(node_id, node_ip), filename
    if submission_id is not None:
        return _of_submission(submission_id)
    if actor_id is not None:
        process = next(
            (row["process"] for row in cluster.actors() if row["actor_id"] == actor_id), None
        )
        if not process:
            raise ValueError(f"get_log: there is no actor {actor_id} with a process")
    elif task_id is not None:
        process = _process_of_task(task_id, attempt)
    elif pid is not None:
        process = _process_of_pid(pid, _node(node_id, node_ip))
    else:
        raise ValueError("get_log needs filename, submission_id, actor_id, task_id or pid")
    return int(process.partition(".")[0]), f"worker-{process}.{suffix}"


def _process_of_task(task_id: str, attempt: int) -> str:
    known, _, _ = tasks.known_calls(ended=True, filters=[], limit=10_000, id=task_id)
    found = {row["attempt"]: row["worker"] for row in known if row["worker"]}
    if attempt not in found:
        there = f"; there are attempts {sorted(found)}" if found else ""
        raise ValueError(
            f"get_log: nothing is known of attempt {attempt} of a task {task_id}{there}"
        )
    return str(found[attempt])


def _process_of_pid(pid: int, node: int) -> str:
    found = [
        row["worker"] for row in _core.workers() if row["pid"] == pid and node in (0, row["node"])
    ]
    if not found:
        raise ValueError(f"get_log: there is no worker with pid {pid}")
    if len(found) > 1:
        raise ValueError(f"get_log: workers {', '.join(found)} have the pid {pid}: say node_id")
    return str(found[0])


def _of_submission(submission_id: str) -> tuple[int, str]:
    name = f"job-driver-{submission_id}.log"
    for row in _core.nodes():
        if row["state"] != "DEAD":
            answer = _core.log_list(row["node"], globbing.escape(name))
            if answer["files"]:
                return row["node"], name
    raise ValueError(f"get_log: no node has the log of a job {submission_id}")
