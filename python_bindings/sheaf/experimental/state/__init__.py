# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where Ray had its state API before ray.util.state."""
