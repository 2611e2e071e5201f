# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of what is built already: what `pip wheel .` makes, without compiling it a second
time.

Usage: assemble.py BUILD FOLDER
"""

import base64
import contextlib
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def assemble(cmake: str, build: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """Installs the component `python` of the build folder below `out` and packs it, with the
    metadata that pyproject.toml gives."""
    from scikit_build_core.build import prepare_metadata_for_build_wheel

    tree = out / "tree"
    subprocess.run(
        [cmake, "--install", build, "--component", "python", "--strip", "--prefix", tree],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    settings = {"build-dir": str(out / "metadata")}  # Not the one of a wheel that is being built.
    with contextlib.chdir(SOURCE), contextlib.redirect_stdout(sys.stderr):
        info = prepare_metadata_for_build_wheel(str(tree), settings)
    tags = [
        line[5:]
        for line in (tree / info / "WHEEL").read_text().splitlines()
        if line.startswith("Tag: ")
    ]
    wheel = out / f"{info.removesuffix('.dist-info')}-{tags[0]}.whl"
    record = f"{info}/RECORD"
    rows = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(p for p in tree.rglob("*") if p.is_file()):
            name = path.relative_to(tree).as_posix()
            if name == record:
                continue
            content = path.read_bytes()
            digest = (
                base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            )
            rows.append(f"{name},sha256={digest},{len(content)}")
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (
                os.stat(path).st_mode & 0xFFFF
            ) << 16  # pip keeps what is executable.
            archive.writestr(entry, content)
        archive.writestr(record, "\n".join([*rows, f"{record},,"]) + "\n")
    return wheel


if __name__ == "__main__":
    to = pathlib.Path(sys.argv[2])
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sheaf-wheel-") as scratch:
        shutil.copy(assemble("cmake", pathlib.Path(sys.argv[1]), pathlib.Path(scratch)), to)
