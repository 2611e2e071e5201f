# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of sheaf.util.state, as libraries still import them from here."""

from sheaf.util.state import *  # noqa: F401 F403
