# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The dashboard of a node of this machine."""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import subprocess
import time

from sheaf._internal import program

_READY_S = 30.0
_IDLE_S = 60  # Without a request for so long one that was started here ends.

_started: dict[str, tuple[subprocess.Popen[bytes], str]] = {}  # By address.


def of_session(address: str | None) -> str:
    """The URL of the node's dashboard, or of one that this process starts for it.

    Args:
        address: a session directory; None or "auto": the newest node.

    Raises:
        ConnectionError: no node runs there.
    """
    where = "" if address in (None, "auto") else str(address)
    if where:
        with contextlib.suppress(OSError), open(os.path.join(where, "dashboard")) as file:
            return file.read().strip()
    known = _started.get(where)
    if known is not None and known[0].poll() is None:
        return known[1]
    command = [program.command(), "dashboard", "--port=0", f"--idle-limit={_IDLE_S}"]
    if where:
        command.append(f"--address={where}")
    # Not with this process's own streams: who reads those to their end would wait for it.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    line = _first_line(process)
    if not line:
        process.kill()
        why = process.communicate()[1].decode("utf-8", "replace").strip()
        raise ConnectionError(
            f"no dashboard could be started for {where or 'the newest node'}: {why}"
        )
    url = next(word for word in line.split() if word.startswith("http"))
    _started[where] = process, url
    atexit.register(_end, process, os.getpid())
    return url


def _end(process: subprocess.Popen[bytes], starter: int) -> None:
    if os.getpid() == starter:  # Not a fork of it.
        process.terminate()


def _first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    text = b""
    deadline = time.monotonic() + _READY_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in text and selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                break
            text += piece
    return text.partition(b"\n")[0].decode("utf-8", "replace")
