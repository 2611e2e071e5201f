# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What programs written for Ray import from ray.data.util, and whose memory columns lie in."""
