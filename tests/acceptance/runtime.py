# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The module under test, chosen by RUNTIME, under the name that Ray programs use."""

import importlib
import os

ray = importlib.import_module(os.environ.get("RUNTIME", "sheaf"))
