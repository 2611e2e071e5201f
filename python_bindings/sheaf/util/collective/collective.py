# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The functions of sheaf.util.collective under the name of the module that has them in Ray."""

from sheaf.util.collective import *  # noqa: F403
from sheaf.util.collective.several_gpus import GroupManager, get_address_and_port, synchronize

__all__ = ["GroupManager", "get_address_and_port", "synchronize"]
