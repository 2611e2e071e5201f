# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Metrics of user code; not there yet."""

from sheaf import absent

Metric = absent.a_class("util.metrics.Metric")
Counter = absent.a_class("util.metrics.Counter")
Gauge = absent.a_class("util.metrics.Gauge")
Histogram = absent.a_class("util.metrics.Histogram")
