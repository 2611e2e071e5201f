# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Says which links of a static site lead nowhere: to a file or an anchor that is not there, or out
of the site's folder.

Usage: check_links.py FOLDER. Links to other hosts are not followed; the pages have few of them.
"""

import html.parser
import os
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, text: str):
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if not value:
                continue
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif (name, tag) in (
                ("href", "a"),
                ("href", "link"),
                ("src", "img"),
                ("src", "script"),
            ):
                self.links.add(value)


def broken(folder: pathlib.Path) -> list[str]:
    pages = {file: Page(file.read_text(errors="replace")) for file in folder.rglob("*.html")}
    found = []
    for file, page in sorted(pages.items()):
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = file
            if parts.path:
                to = pathlib.Path(os.path.normpath(file.parent / urllib.parse.unquote(parts.path)))
            anchor = urllib.parse.unquote(parts.fragment)
            inside = to.is_relative_to(folder) and to.is_file()
            if not inside or (to in pages and anchor not in pages[to].anchors):
                found.append(f"{file.relative_to(folder)}: the link to {link} leads nowhere")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(broken(pathlib.Path(sys.argv[1]).resolve())) or 0)
