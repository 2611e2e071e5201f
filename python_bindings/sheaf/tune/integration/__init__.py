# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Callbacks of other libraries that report to the trial."""
