# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names of `ray.util.common`."""

INT32_MAX = 2**31 - 1
