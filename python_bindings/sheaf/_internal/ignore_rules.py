# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Which files of a directory stay out of a package: patterns as .gitignore has them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

# What no worker needs.
DEFAULT = (
    ".git/",
    ".hg/",
    ".venv/",
    "venv/",
    "__pycache__/",
    "*.pyc",
    ".mypy_cache/",
    ".pytest_cache/",
)


class IgnoreRules:
    """Patterns, the last that matches decides. `data`, `*.log`: anywhere; `/data`, `a/b`: from the
    directory of the rules; `data/`: directories only; `**`: any number of directories; `!keep`: not
    ignored after all."""

    def __init__(self, patterns: list[str] | tuple[str, ...]):
        self._rules = [rule for rule in map(_compile, patterns) if rule is not None]

    def decide(self, path: str, is_directory: bool) -> bool | None:
        """Whether `path`, relative and with "/", is ignored; None: no pattern speaks of it."""
        for pattern, ignored, directories_only in reversed(self._rules):
            if (is_directory or not directories_only) and pattern.fullmatch(path):
                return ignored
        return None


def _compile(line: str) -> tuple[re.Pattern[str], bool, bool] | None:
    line = line.rstrip("\n").rstrip()
    if not line or line.startswith("#"):
        return None
    ignored = not line.startswith("!")
    line = line.removeprefix("!").removeprefix("./")
    directories_only = line.endswith("/")
    line = line.rstrip("/")
    anchored = "/" in line
    pattern = "".join(_translate(line.lstrip("/")))
    return (
        re.compile(pattern if anchored else "(?:.*/)?" + pattern, re.S),
        ignored,
        directories_only,
    )


def _translate(glob: str) -> Iterator[str]:
    for part in re.findall(r"\*\*/|/\*\*$|\*\*|\*|\?|\[!?[^\]]+\]|\\.|.", glob, re.S):
        if part == "**/":
            yield "(?:.*/)?"
        elif part == "/**":
            yield "/.*"
        elif part == "**":
            yield ".*"
        elif part == "*":
            yield "[^/]*"
        elif part == "?":
            yield "[^/]"
        elif part[0] == "[" and len(part) > 2:
            yield (
                "["
                + ("^" + part[2:-1] if part[1] == "!" else part[1:-1]).replace("\\", "\\\\")
                + "]"
            )
        else:
            yield re.escape(part[-1])


def files_below(root: str, excludes: list[str]) -> list[str]:
    """The files below `root`, relative to it, sorted, less those that the defaults, `excludes` and
    the .gitignore files there leave out. Links to directories are followed once."""
    found: list[str] = []
    seen: set[str] = set()
    own = IgnoreRules(excludes)

    def walk(folder: str, above: list[tuple[str, IgnoreRules]]) -> None:
        full = os.path.join(root, folder)
        real = os.path.realpath(full)
        if real in seen:
            return
        seen.add(real)
        rules = list(above)
        if os.path.isfile(os.path.join(full, ".gitignore")):
            with open(os.path.join(full, ".gitignore"), encoding="utf-8", errors="replace") as file:
                rules.append((folder + "/" if folder else "", IgnoreRules(file.readlines())))
        for entry in sorted(os.scandir(full), key=lambda e: e.name):
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_directory = entry.is_dir()
            if _ignored(path, is_directory, rules, own):
                continue
            if is_directory:
                walk(path, rules)
            elif entry.is_file():
                found.append(path)

    walk("", [("", IgnoreRules(DEFAULT))])
    return found


def _ignored(
    path: str, is_directory: bool, rules: list[tuple[str, IgnoreRules]], own: IgnoreRules
) -> bool:
    decided = own.decide(path, is_directory)
    if decided is not None:
        return decided
    for base, rule in reversed(rules):
        decided = rule.decide(path[len(base) :], is_directory)
        if decided is not None:
            return decided
    return False
