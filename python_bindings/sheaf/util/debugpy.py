# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The debugger of tasks for editors: not in Sheaf; the names exist, and say so when they are
used."""

from sheaf._internal import absent

set_trace = absent.function(
    "util.debugpy.set_trace", "run the function in the driver, under the editor's debugger"
)
