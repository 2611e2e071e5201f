# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Exchanges: rows of all blocks that belong together come into one partition. What each kind does
in map tasks and in reducers, and how rows are divided."""
