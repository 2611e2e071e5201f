# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.timeline: when the calls of all workers of the cluster began and ended."""

from __future__ import annotations

import json
import warnings

from sheaf import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def timeline(filename: str | None = None, *, format: str = "json") -> Any:
    """Tells when the last calls of all workers began and ended, as a Chrome trace.

    chrome://tracing and Perfetto show it: a process for each node, a row for each thread of a
    worker, arrows from the call that made another to it. Of quick functions one call in 16 or 64
    is there (sheaf.util.state.list_tasks says which). Times are microseconds since 1970 by the
    clock of each node.

    Args:
        filename: the file that the trace is written to; None: it is returned.
        format: "json", of at most the last 200,000 calls, as more make viewers crash; "perfetto",
            Perfetto's own format, of 2,000,000.

    Returns:
        None; or without a file the events as a list of dicts by time, of format "perfetto" the
        bytes of the file.

    Raises:
        OSError: the file cannot be written.
        RuntimeError: this process has joined no cluster.
        ValueError: there is no such format.
    """
    if not _core.is_initialized():
        raise RuntimeError("Ray has not been started yet: call sheaf.init() first")
    trace, lost = _core.timeline(format)
    if lost:
        warnings.warn(f"timeline: {lost} calls came and went before a node looked", stacklevel=2)
    if filename is None:
        return json.loads(trace) if format != "perfetto" else trace
    with open(filename, "wb") as file:
        file.write(trace)
    return None
