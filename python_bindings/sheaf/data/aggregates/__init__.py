# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What sheaf.data.aggregate is made of."""
