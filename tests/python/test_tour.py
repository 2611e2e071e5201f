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


def section(title):
    """Of docs/operate.md."""
    page = (ROOT / "docs" / "operate.md").read_text()
    return page.split(f"## {title}\n")[1].split("\n## ")[0]


class Shell:
    """Runs lines in a folder, where `sheaf` and `python3` are those of this build."""

    def __init__(self, folder):
        self._folder = folder
        bin = folder / "bin"
        bin.mkdir()
        (bin / "sheaf").symlink_to(BUILT / "cli" / "sheaf")
        (bin / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (bin / "python3").chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{bin}:{os.environ['PATH']}",
            "SHEAF_PYTHON": sys.executable,
            "SHEAF_DIR": str(folder / "tour"),
            "HOME": str(folder),
        }
        for name in ("SHEAF_ADDRESS", "RAY_ADDRESS"):
            self._environment.pop(name, None)

    def run(self, lines, limit_s):
        """What they said, each checked."""
        script = "\n".join(["set -euo pipefail", *map(checked, lines)])
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
        )

    def end(self):
        subprocess.run(
            [BUILT / "cli" / "sheaf", "stop", "--force"],
            env=self._environment,
            check=False,
            capture_output=True,
        )


def test_the_tour_of_operating_a_cluster(tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```", section("A tour"), re.S | re.M)
    assert len(blocks) == 4
    lines = "".join(blocks).splitlines()
    assert sum(checked(line) != line for line in lines) >= 5
    shell = Shell(tmp_path)
    try:
        done = shell.run(lines, LIMIT_S)
    finally:
        shell.end()
    assert done.returncode == 0, done.stdout
