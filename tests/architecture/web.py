# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the sources of the dashboard's page keep to: names that users gave are text, never HTML; nothing
comes from elsewhere; files of one purpose."""

import json
import pathlib
import re

import rules

LINES = 500
# How text becomes HTML, or code. Preact's children and textContent do neither.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|createContextualFragment"
    r"|document\.write|DOMParser|srcdoc|\beval\(|new Function\("
)
ELSEWHERE = re.compile(r"(?:https?:)?//(?!www\.w3\.org/)[a-z0-9-]+\.[a-z]")
REGISTRY = "https://registry.npmjs.org/"


def _comments_out(text: str) -> str:
    return re.sub(r"^\s*(?://|\*|/\*).*$", "", text, flags=re.M)


def check(root: pathlib.Path) -> list[str]:
    """What in dashboard/web breaks a rule: one line each, with the place."""
    web = root / "dashboard/web"
    found = []
    for path in sorted([*web.glob("*.mjs"), *web.rglob("src/**/*.*")]):
        text = path.read_text()
        place = path.relative_to(root)
        if (
            path.suffix in (".ts", ".tsx", ".mjs", ".css")
            and rules.LICENCE not in text.split("\n")[0]
        ):
            found.append(f"{place}:1: the first line is not the licence line")
        if text.count("\n") > LINES:
            found.append(f"{place}: {text.count(chr(10))} lines, at most {LINES}")
        if path.stem in rules.VAGUE_NAMES:
            found.append(f"{place}: a name that says nothing about its purpose")
        for number, line in enumerate(_comments_out(text).split("\n"), 1):
            if match := FORBIDDEN.search(line):
                found.append(
                    f"{place}:{number}: {match[0]}: text of users becomes HTML or code there"
                )
            if match := ELSEWHERE.search(line):
                found.append(f"{place}:{number}: {match[0]}: the page takes nothing from elsewhere")
    lock = web / "package-lock.json"
    for name, package in json.loads(lock.read_text())["packages"].items() if lock.exists() else []:
        if not package.get("resolved", REGISTRY).startswith(REGISTRY):
            found.append(f"{lock.relative_to(root)}: {name} comes from {package['resolved']}")
    return found
