# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The tour of docs/operate.md, as somebody follows it: each line runs, and prints what its comment
says. A comment that ends with a full stop is for the reader only."""

import os
import pathlib
import re
import subprocess
import sys

from sheaf import _core

ROOT = pathlib.Path(__file__).parents[2]
BUILT = pathlib.Path(_core.__file__).resolve().parents[2]
LIMIT_S = 240  # Of all of it; each command has bounds of its own.


def checked(line):
    """The line as the shell runs it: what its comment says is looked for in what it prints."""
    command, mark, comment = line.partition("  # ")
    if not mark or comment.endswith("."):
        return line
    wanted = ".*".join(map(re.escape, comment.strip().strip(". ").split(" ... ")))
    return (
        f"{command} 2>&1 | tee said; tr '\\n' ' ' < said | grep -qE '{wanted}' || "
        f"{{ echo 'THE TOUR: wanted {wanted}'; exit 1; }}"
    )


def test_the_tour_of_operating_a_cluster(tmp_path):
    page = (ROOT / "docs" / "operate.md").read_text()
    tour = page.split("## A tour\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", tour, re.S | re.M)
    assert len(blocks) == 4
    lines = "".join(blocks).splitlines()
    assert sum(checked(line) != line for line in lines) >= 5
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "sheaf").symlink_to(BUILT / "cli" / "sheaf")
    (bin / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (bin / "python3").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{bin}:{os.environ['PATH']}",
        "SHEAF_PYTHON": sys.executable,
        "HOME": str(tmp_path),
    }
    for name in ("SHEAF_ADDRESS", "RAY_ADDRESS"):
        environment.pop(name, None)
    script = "\n".join(["set -euo pipefail", *map(checked, lines)])
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
    finally:
        subprocess.run(
            [BUILT / "cli" / "sheaf", "stop", "--force"],
            env={**environment, "SHEAF_DIR": str(tmp_path / "tour")},
            check=False,
            capture_output=True,
        )
    assert done.returncode == 0, done.stdout
