# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Ray's command line, for those who have it in their fingers and in their scripts."""
