# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Keys of results that sheaf.tune itself reads or writes."""

DEFAULT_METRIC = "_metric"  # Of a function that returns or reports a bare number.
DONE = "done"
TRAINING_ITERATION = "training_iteration"
TIME_TOTAL_S = "time_total_s"
