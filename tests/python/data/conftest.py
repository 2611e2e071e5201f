# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Without pyarrow there is nothing to test; ctest calls that skipped (tests/python/CMakeLists.txt)."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("pyarrow") else ["test_*.py"]
