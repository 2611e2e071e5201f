# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Renders the documents of the tree as a static site, beside the two references of the API.

Usage: site.py FOLDER. A document PATH.md becomes FOLDER/PATH.html, README.md the index. Files of
the tree that documents link to become pages with their text, folders lists of what is in them.
"""

import functools
import os
import pathlib
import re
import shutil
import sys

import jinja2
import markupsafe
import pygments
import pygments.formatters
import pygments.lexers
from markdown_it import MarkdownIt
from pygments.util import ClassNotFound

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# The parts of the site in their order. Folders stand for the documents in them.
PARTS = {
    "Start": ["README.md", "docs/from_ray.md", "CHANGELOG.md"],
    "Guide": [
        "docs/guide/tasks.md",
        "docs/guide/actors.md",
        "docs/guide/objects.md",
        "docs/guide/placement.md",
        "docs/guide/failures.md",
        "docs/guide/training.md",
        "docs/guide/tune.md",
        "docs/guide/arrow.md",
        "docs/guide/dashboard.md",
        "docs/guide/cpp.md",
    ],
    "Reference": [
        "python/sheaf.html",
        "cpp/index.html",
        "docs/errors.md",
        "docs/configuration.md",
        "docs/cli.md",
        "docs/jobs.md",
        "docs/metrics.md",
        "docs/objects.md",
        "docs/training.md",
        "docs/python_tools.md",
        "docs/cross_language.md",
        "docs/nccl.md",
        "docs/platforms.md",
    ],
    "Operate": ["docs/operate.md", "docs/deploy.md", "docs/runbooks.md", "SECURITY.md"],
    "Inside": ["ARCHITECTURE.md", "CONTRIBUTING.md"],
    "Design": ["docs/design"],
    "Evidence": ["docs/evidence"],
}
OUTSIDE = {"python/sheaf.html": "Python API", "cpp/index.html": "C++ API"}


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page_of(path: str) -> str:
    """Where a file of the tree is in the site."""
    if path == "README.md":
        return "index.html"
    if path in documents():
        return path.removesuffix(".md") + ".html"
    return path if path.endswith(".html") else f"source/{path.rstrip('/')}.html"


def title_of(path: str) -> str:
    """Its first heading, to the colon."""
    heading = re.search(r"^# (.*)$", (ROOT / path).read_text(), re.M)[1]
    return heading.replace("`", "").partition(":")[0]


@functools.cache
def documents() -> list[str]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


@functools.cache
def parts() -> dict[str, list[tuple[str, str]]]:
    """(page, title) of all that the navigation names. SystemExit: it forgets a document."""
    listed: dict[str, list[tuple[str, str]]] = {}
    left = set(documents())
    for part, paths in PARTS.items():
        for path in paths:
            for one in [d for d in documents() if d.startswith(path + "/")] or [path]:
                left.discard(one)
                entry = (page_of(one), OUTSIDE.get(one) or title_of(one))
                listed.setdefault(part, []).append(entry)
    if left:
        sys.exit(f"site: PARTS in tools/docs/site.py names no part for {', '.join(sorted(left))}")
    return listed


def highlight(code: str, language: str, _attributes: str = "") -> str:
    try:
        lexer = pygments.lexers.get_lexer_by_name(language or "text")
    except ClassNotFound:
        lexer = pygments.lexers.TextLexer()
    return pygments.highlight(code, lexer, pygments.formatters.HtmlFormatter(nowrap=True))


class Site:
    """Pages that were written, and files of the tree that they link to."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._linked: set[str] = set()
        loader = jinja2.FileSystemLoader(HERE)
        self._page = jinja2.Environment(loader=loader, autoescape=True).get_template("page.html")
        self._markdown = MarkdownIt("commonmark", {"highlight": highlight}).enable("table")

    def write(self, page: str, title: str, body: str) -> None:
        file = self._folder / page
        file.parent.mkdir(parents=True, exist_ok=True)
        top = os.path.relpath(self._folder, file.parent)
        text = self._page.render(
            title=title, body=markupsafe.Markup(body), here=page, parts=parts(), top=top
        )
        file.write_text(text)

    def document(self, path: str) -> None:
        tokens = self._markdown.parse((ROOT / path).read_text())
        for index, token in enumerate(tokens):
            if token.type == "heading_open":
                token.attrSet("id", slug(self._text(tokens[index + 1])))
            for child in token.children or []:
                if child.type == "link_open":
                    child.attrSet("href", self._link(path, str(child.attrGet("href"))))
                if child.type == "image":
                    self._picture(path, str(child.attrGet("src")))
        body = self._markdown.renderer.render(tokens, self._markdown.options, {})
        body = body.replace("<table>", '<div class="wide"><table>')
        body = body.replace("</table>", "</table></div>")
        self.write(page_of(path), title_of(path), body)

    def sources(self) -> None:
        """Writes what documents link to and is no document; a list may link to more."""
        done: set[str] = set()
        while left := self._linked - done:
            for path in sorted(left):
                self._source(path)
            done |= left

    def _text(self, inline) -> str:
        return "".join(part.content for part in inline.children or [])

    def _link(self, path: str, target: str) -> str:
        """A link of a document, as a link of its page."""
        to, _, anchor = target.partition("#")
        if "://" in to or not to:
            return target
        file = os.path.normpath(os.path.join(os.path.dirname(path), to))
        if file not in documents():
            self._linked.add(file)
        page = os.path.relpath(page_of(file), os.path.dirname(page_of(path)) or ".")
        return page + (f"#{anchor}" if anchor else "")

    def _picture(self, path: str, source: str) -> None:
        """Of a document; in the site it lies where it lies in the tree, beside its page."""
        file = (ROOT / path).parent / source
        to = (self._folder / path).parent / source
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)

    def _source(self, path: str) -> None:
        page = page_of(path)
        if (ROOT / path).is_dir():
            rows = []
            for entry in sorted((ROOT / path).iterdir()):
                name = str(entry.relative_to(ROOT))
                if entry.name == "__pycache__":
                    continue
                if name not in documents():
                    self._linked.add(name)
                link = os.path.relpath(page_of(name), os.path.dirname(page))
                rows.append(f'<li><a href="{link}">{markupsafe.escape(entry.name)}</a></li>')
            body = f"<h1>{path}</h1><ul>{''.join(rows)}</ul>"
        else:
            data = (ROOT / path).read_bytes()
            text = data.decode() if b"\0" not in data else f"({len(data)} bytes)"
            language = {".py": "python", ".cc": "cpp", ".h": "cpp"}.get(pathlib.Path(path).suffix)
            body = f"<h1>{path}</h1><pre><code>{highlight(text, language or 'text')}</code></pre>"
        self.write(page, path, body)


def main() -> None:
    site = Site(pathlib.Path(sys.argv[1]))
    for path in documents():
        site.document(path)
    site.sources()
    styles = (HERE / "style.css").read_text()
    for theme, scope in (("default", ""), ("github-dark", "dark")):
        css = pygments.formatters.HtmlFormatter(style=theme).get_style_defs("pre")
        css = re.sub(r"^pre \{.*\}$|^.*linenos.*$", "", css, flags=re.M)
        styles += f"@media (prefers-color-scheme: {scope}) {{\n{css}\n}}\n" if scope else css + "\n"
    (pathlib.Path(sys.argv[1]) / "style.css").write_text(styles)


if __name__ == "__main__":
    main()
