# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Resources that change while a node runs: in Ray neither any more."""

from sheaf._internal import absent

set_resource = absent.function(
    "experimental.set_resource", "give a node its resources when it starts, with --resources"
)
