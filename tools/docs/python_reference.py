# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Writes the reference of the Python package, a static site with a search: pdoc over the modules
that users import.

Usage: python_reference.py FOLDER, with the package in PYTHONPATH.
"""

import importlib
import pathlib
import pkgutil
import sys
import warnings

import pdoc
import pdoc.render
import sheaf

# Beside those that `sheaf` gives as attributes.
TOOLS = {"as_ray", "testing", "torch"}


def modules() -> list[str]:
    """Names and exclusions, as pdoc takes them: no private modules, none that need what is not
    installed. Each is named, as pdoc looks only for those in `__all__` by itself."""
    wanted = ["sheaf"]
    public = set(sheaf._SUBMODULES) | TOOLS
    for found in pkgutil.walk_packages(sheaf.__path__, "sheaf.", onerror=lambda name: None):
        first, *rest = found.name.split(".")[1:]
        if first not in public or any(part[0] == "_" for part in (first, *rest)):
            wanted.append(f"!{found.name}")
            continue
        try:
            importlib.import_module(found.name)
            wanted.append(found.name)
        except ImportError as error:
            print(f"python_reference: {found.name} is left out: {error}")
            wanted.append(f"!{found.name}")
    return wanted


def main() -> None:
    # Modules of packages are named twice; what cannot be imported is said above; stubs that name
    # what stands below them give no types.
    for message in ("The module specification", "Couldn't import", "Error parsing type stubs"):
        warnings.filterwarnings("ignore", message)
    pdoc.render.configure(
        docformat="google",
        footer_text="Sheaf",
        show_source=False,
        template_directory=pathlib.Path(__file__).resolve().parent / "pdoc",
    )
    pdoc.pdoc(*modules(), output_directory=pathlib.Path(sys.argv[1]))


if __name__ == "__main__":
    main()
