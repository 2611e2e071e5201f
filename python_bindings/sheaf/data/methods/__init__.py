# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Dataset is made of: its methods by purpose."""
