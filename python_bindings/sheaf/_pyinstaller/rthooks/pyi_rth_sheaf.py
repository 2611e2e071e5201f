# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runs in a frozen program ahead of the user's code: a worker, which is the same program with
another argument, ends in here."""

import sys

sys._sheaf_frozen = True  # type: ignore[attr-defined]  # lifecycle.worker_command looks for it.
if sys.argv[1:2] == ["--sheaf-worker"]:
    from sheaf._worker import start

    start.run(sys.argv[2])
