# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How the first call of a program starts a node."""

from sheaf import lifecycle

enable_auto_connect = True


def auto_init_ray() -> None:
    """init(), where it was not called."""
    lifecycle.init_by_default()
