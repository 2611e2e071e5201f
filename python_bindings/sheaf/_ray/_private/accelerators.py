# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Which resources are accelerators."""


def get_all_accelerator_resource_names() -> set[str]:
    """Returns the names by which tasks and actors ask for them."""
    return {"GPU"}
