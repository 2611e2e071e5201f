# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What libraries look up in `ray.train._internal`."""
