# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where Ray has its integrations: see sheaf.tune.logger."""
