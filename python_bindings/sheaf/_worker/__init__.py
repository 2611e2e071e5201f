# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What runs in the processes of workers alone, called by sheaf._core. Nothing else imports it."""
