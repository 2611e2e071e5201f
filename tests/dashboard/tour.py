# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The tour of docs/operate.md that goes on in the browser. Its text is the program: blocks of a shell
run, what is **bold** is clicked, what is *slanted* has to be there then, and pictures are taken where
they stand."""

import pathlib
import re
import tempfile

from test_tour import ROOT, Shell, section

STEP = re.compile(
    r"^```sh\n(?P<sh>.*?)^```"
    r"|\*\*(?P<click>[^*]+)\*\*"
    r"|\*(?P<see>[^*]+)\*"
    r"|!\[[^]]*\]\(pictures/(?P<picture>[\w-]+)\.webp\)",
    re.S | re.M,
)
PICTURES = ROOT / "docs/pictures"
LIMIT_S = 120  # Of a block.


def steps() -> list[tuple[str, str]]:
    """(what, words) of each, in their order."""
    text = section("The tour in the browser").split("\n### ")[0]
    found = [(match.lastgroup, match[match.lastgroup]) for match in STEP.finditer(text)]
    return [(what, words if what == "sh" else " ".join(words.split())) for what, words in found]


def take(drive, record: pathlib.Path) -> int:
    """Takes the tour; `drive` runs tour.mjs. `record`: where its pictures go. The exit status."""
    with tempfile.TemporaryDirectory(prefix="sheaf-tour-") as folder:
        shell = Shell(pathlib.Path(folder))

        def sh(lines: str) -> dict[str, str | None]:
            done = shell.run(lines.splitlines(), LIMIT_S)
            assert done.returncode == 0, done.stdout
            url = re.search(r"Dashboard: +(http\S+)", done.stdout)
            return {"url": url and url[1]}

        try:
            told = {"steps": steps(), "url": None, "record": str(record)}
            return drive("tour.mjs", told, {"sh": sh})
        finally:
            shell.end()
