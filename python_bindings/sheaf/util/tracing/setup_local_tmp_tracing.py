# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A hook that writes spans into files, to look at them without a receiver:
init(_tracing_startup_hook="sheaf.util.tracing.setup_local_tmp_tracing:setup_tracing")."""

from __future__ import annotations

import os
from typing import TextIO

_FOLDER = "/tmp/spans"


def _own_file(folder: str, name: str) -> TextIO:
    """A new file, for this user alone. Others may have put links into the folder, or in its place,
    that lead to files of this user."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            os.unlink(name, dir_fd=place)  # Of an earlier process of this number.
        except FileNotFoundError:
            pass
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.fdopen(os.open(name, flags, 0o600, dir_fd=place), "w")
    finally:
        os.close(place)


def setup_tracing() -> None:
    """Writes this process's spans into /tmp/spans/PID.json, a line of JSON each, as they end.

    Raises:
        ImportError: the package opentelemetry-sdk is not installed.
        OSError: the file cannot be made, or /tmp/spans is no directory: links are not followed.
    """
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    file = _own_file(_FOLDER, f"{os.getpid()}.json")  # For the process's life.
    provider = TracerProvider()
    provider.add_span_processor(
        SimpleSpanProcessor(
            ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
        )
    )
    trace.set_tracer_provider(provider)
