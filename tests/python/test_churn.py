# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A few rounds of churn.py: nothing that they begin stays."""

import churn
import sheaf


def test_what_rounds_of_everything_leave_does_not_grow():
    sheaf.shutdown()
    sheaf.init(num_cpus=4, object_store_memory=128 << 20, log_to_driver=False)
    try:
        _, lines, wrong = churn.run(seconds=2, seed=7)
        # Of memory a few rounds say nothing.
        assert not [line for line in wrong if "MiB" not in line], lines
    finally:
        sheaf.shutdown()
