# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Names a wheel after the oldest Linux that it runs on: manylinux_X_Y of PEP 600, X.Y being the
glibc whose symbols it needs.

    platform_tag.py WHEEL      renames it in place, and prints the new path

A wheel may be named so only if it needs no library of the system but those that every Linux has, in
versions no newer than those of distributions with that glibc. What is inside is looked at, not
believed. Needs objdump (binutils).
"""

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

# PEP 600's policies: what may come from the system.
SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libutil.so.1", "libgcc_s.so.1", "libstdc++.so.6",
          "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}  # fmt: skip
# libstdc++ and libgcc as the distributions have them that came with a glibc: (glibc, GLIBCXX,
# CXXABI, GCC), oldest first.
RUNTIMES = [
    ((2, 17), (3, 4, 19), (1, 3, 7), (4, 8, 0)),
    ((2, 28), (3, 4, 24), (1, 3, 11), (8, 0, 0)),
    ((2, 31), (3, 4, 28), (1, 3, 12), (9, 0, 0)),
    ((2, 34), (3, 4, 29), (1, 3, 13), (11, 0, 0)),
    ((2, 35), (3, 4, 30), (1, 3, 13), (12, 0, 0)),
    ((2, 38), (3, 4, 32), (1, 3, 14), (13, 0, 0)),
    ((2, 39), (3, 4, 33), (1, 3, 15), (14, 0, 0)),
]


def _objects(folder):
    """The programs and libraries in a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def needs(path):
    """(libraries, newest version of each symbol set as {"GLIBC": (2, 34), ...}) of one program or
    library."""
    said = subprocess.run(
        ["objdump", "-p", str(path)], capture_output=True, text=True, check=True
    ).stdout
    newest = {}
    wanted = said.partition("Version References:")[2]
    for name, number in re.findall(r"\s(GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)\s", wanted):
        version = tuple(map(int, number.split(".")))
        newest[name] = max(newest.get(name, version), version)
    return re.findall(r"NEEDED\s+(\S+)", said), newest


def glibc_of(folder):
    """The glibc that the unpacked wheel in `folder` needs. ValueError: it needs other libraries of
    the system, or newer ones."""
    objects = list(_objects(folder))
    own = {path.name for path in objects}
    newest = {"GLIBC": (2, 17)}
    for path in objects:
        libraries, versions = needs(path)
        foreign = [name for name in libraries if name not in own and name not in SYSTEM]
        if foreign:
            raise ValueError(
                f"{path.relative_to(folder)} needs {', '.join(foreign)}, which the "
                "wheel does not hold"
            )
        for name, version in versions.items():
            newest[name] = max(newest.get(name, version), version)
    zero = (0,)
    for glibc, *runtimes in RUNTIMES:
        if glibc >= newest["GLIBC"] and all(
            newest.get(name, zero) <= had
            for name, had in zip(("GLIBCXX", "CXXABI", "GCC"), runtimes)
        ):
            return glibc
    raise ValueError(f"no distribution is known that has all of {newest}")


def retag(wheel):
    """Renames a wheel that says only `linux`, in name and metadata; gives its new path."""
    with tempfile.TemporaryDirectory(prefix="sheaf-tag-") as scratch:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
        major, minor = glibc_of(pathlib.Path(scratch))
    old = re.search(r"-(linux_\w+)\.whl$", wheel.name).group(1)
    new = old.replace("linux", f"manylinux_{major}_{minor}", 1)
    renamed = wheel.with_name(wheel.name.replace(old, new))
    with (
        zipfile.ZipFile(wheel) as source,
        zipfile.ZipFile(renamed, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as target,
    ):
        tag_file = next(name for name in source.namelist() if name.endswith(".dist-info/WHEEL"))
        tags = re.sub(
            rf"(?m)^(Tag: .*-){old}$", rf"\g<1>{new}", source.read(tag_file).decode()
        ).encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(tags).digest()).rstrip(b"=").decode()
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename == tag_file:
                content = tags
            elif entry.filename.endswith(".dist-info/RECORD"):
                row = f"{tag_file},sha256={digest},{len(tags)}"
                content = re.sub(rf"(?m)^{re.escape(tag_file)},.*$", row, content.decode()).encode()
            target.writestr(entry, content)
    wheel.unlink()
    return renamed


if __name__ == "__main__":
    try:
        print(retag(pathlib.Path(sys.argv[1])))
    except ValueError as reason:
        sys.exit(f"{sys.argv[1]} stays as it is: {reason}")
