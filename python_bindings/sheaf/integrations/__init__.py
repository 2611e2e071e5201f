# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Sheaf in other programs' clothes. Each module needs that program."""
