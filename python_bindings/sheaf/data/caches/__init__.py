# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Dataset.cache() keeps: blocks in the object store within a bound, or in files."""
