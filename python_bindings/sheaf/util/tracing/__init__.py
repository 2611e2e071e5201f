# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Traces by OpenTelemetry: hooks for init(_tracing_startup_hook=...)."""
