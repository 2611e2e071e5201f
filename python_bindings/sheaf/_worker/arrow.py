# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What workers of a job that uses sheaf.data import before the forks: pyarrow takes a third of a
second and more, and would be imported anew in each."""

import os

# Arrow's allocator starts a thread, which no fork would have.
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")

import pyarrow  # noqa: E402, F401
import pyarrow.compute  # noqa: E402, F401
import pyarrow.dataset  # noqa: E402, F401
