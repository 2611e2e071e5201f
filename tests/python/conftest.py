# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One node per test module, with four CPUs, two GPUs that nothing looks at, and two of a custom resource."""

import pytest
import sheaf

WAIT_S = 30  # How long a test waits for what should come at once.


@pytest.fixture(scope="module")
def node():
    sheaf.init(num_cpus=4, num_gpus=2, resources={"slot": 2}, object_store_memory=256 << 20, log_to_driver=False)
    yield sheaf
    sheaf.shutdown()
