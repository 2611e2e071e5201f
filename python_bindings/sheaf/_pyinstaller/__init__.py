# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How PyInstaller freezes programs that use Sheaf. It finds this folder by the entry point of the
wheel; elsewhere by --additional-hooks-dir."""


def hook_dirs() -> list[str]:
    """The folders with hooks."""
    return list(__path__)
