# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a frozen program needs of Sheaf: most modules are imported when they are used, and the node
is a program of its own."""

import pathlib

from PyInstaller.utils.hooks import collect_dynamic_libs, get_package_paths

_FOLDER = pathlib.Path(get_package_paths("sheaf")[1])
_FILES = [path.relative_to(_FOLDER.parent) for path in _FOLDER.rglob("*.py")]

hiddenimports = [
    *sorted(
        ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for path in _FILES
        if not {"_pyinstaller", "_alias"} & set(path.parts)
    ),
    "cloudpickle",
    "nanobind_backend",
    "nanobind_backend._nb_backend_v1",
]
module_collection_mode = {"sheaf": "py"}  # sheaf._ray lies in the path of the package, too.
binaries = [*collect_dynamic_libs("sheaf"), (str(_FOLDER / "bin" / "sheaf"), "sheaf/bin")]
