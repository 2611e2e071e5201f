# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Streaming datasets on Arrow blocks in shared memory, with the names of Ray Data."""
