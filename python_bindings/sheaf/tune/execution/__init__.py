# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How an experiment runs: the controller decides, the driver acts, the journal remembers."""
