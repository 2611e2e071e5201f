# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Traces by OpenTelemetry: not in Sheaf; the names exist, and say so when they are used."""

from sheaf._internal import absent

setup_tracing = absent.function("util.tracing.setup_tracing")
