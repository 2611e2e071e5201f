# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the public modules are made of. It knows none of them, and no program imports it."""
