# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A hook that writes spans into files, to look at them without a receiver:
init(_tracing_startup_hook="sheaf.util.tracing.setup_local_tmp_tracing:setup_tracing")."""

from __future__ import annotations

import os


def setup_tracing() -> None:
    """Writes this process's spans into /tmp/spans/PID.json, a line of JSON each, as they end.

    Raises:
        ImportError: the package opentelemetry-sdk is not installed.
    """
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    os.makedirs("/tmp/spans", exist_ok=True)
    file = open(f"/tmp/spans/{os.getpid()}.json", "w")  # noqa: SIM115  # For the process's life.
    provider = TracerProvider()
    provider.add_span_processor(
        SimpleSpanProcessor(
            ConsoleSpanExporter(out=file, formatter=lambda span: span.to_json(indent=None) + "\n")
        )
    )
    trace.set_tracer_provider(provider)
