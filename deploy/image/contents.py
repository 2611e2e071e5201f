# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is in a system: its packages, Debian's and Python's, as CycloneDX.

Usage: contents.py ROOT PACKAGES NAME > FILE

PACKAGES: a file with the names of Debian's package files, one a line.
"""

import json
import pathlib
import re
import sys
import urllib.parse


def debian(packages: str) -> list[dict]:
    """Those of Debian: NAME_VERSION_ARCHITECTURE.deb."""
    found = []
    for name, version, architecture in re.findall(r"^([^_]+)_([^_]+)_(\w+)\.deb$", packages, re.M):
        exact = urllib.parse.unquote(version)  # Of an epoch the colon.
        purl = f"pkg:deb/debian/{name}@{version}?arch={architecture}"
        found.append({"type": "library", "name": name, "version": exact, "purl": purl})
    return found


def python(root: pathlib.Path) -> list[dict]:
    """Those that pip has put there."""
    found = []
    for metadata in root.glob("usr/local/lib/python3*/dist-packages/*.dist-info/METADATA"):
        fields = dict(re.findall(r"^(Name|Version): (.*)$", metadata.read_text(), re.M))
        name, version = fields["Name"], fields["Version"]
        purl = f"pkg:pypi/{name.lower()}@{version}"
        found.append({"type": "library", "name": name, "version": version, "purl": purl})
    return found


def main() -> None:
    """Prints the list."""
    root, packages, name = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    components = sorted(debian(packages.read_text()) + python(root), key=lambda one: one["purl"])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name}},
        "components": components,
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
