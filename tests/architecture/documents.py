# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What documents name exists: the files in backticks of those that say how Sheaf is built, and the targets of links in all."""

import fnmatch
import pathlib
import re
import subprocess

CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.S | re.M)
INDENTED = re.compile(r"^    .*$", re.M)
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path: of letters, digits, _, -, . and * (any letters), with a folder or one of these endings.
PATH = re.compile(r"[\w.*-]+(/[\w.*-]+)*/?")
ENDINGS = (".cc", ".h", ".py", ".pml", ".proto", ".toml", ".md", ".txt")


def documents(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")])


def files(root: pathlib.Path) -> list[str]:
    """All paths of the tree, folders too, as git sees them; of a tree without git, what lies there."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=True)
        found = {pathlib.PurePosixPath(line) for line in listed.stdout.splitlines()}
    else:
        found = {pathlib.PurePosixPath(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return sorted({str(path) for file in found for path in (file, *file.parents)} - {"."})


def names_a_path(token: str) -> bool:
    return PATH.fullmatch(token) is not None and (token.endswith(ENDINGS) or ("/" in token and token.split("/")[0] != ""))


def check(root: pathlib.Path) -> list[str]:
    tree = files(root)
    top = {path.split("/")[0] for path in tree}

    def exists(token: str) -> bool:
        # From the root, or the end of a path (`ring.h`); `rpc/link_state` stands for all of that name.
        patterns = (token.rstrip("/"), token.rstrip("/") + ".*", "*/" + token.rstrip("/"))
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns for path in tree)

    found = []
    for document in documents(root):
        where = document.relative_to(root)
        text = FENCE.sub("", document.read_text())
        if where.name == "ARCHITECTURE.md" or where.parts[:2] == ("docs", "design"):
            for token in CODE.findall(INDENTED.sub("", text)):
                is_path = names_a_path(token) and (token.endswith(ENDINGS) or token.split("/")[0] in top)
                if is_path and not exists(token):
                    found.append(f"{where}: `{token}` is no file of the tree")
        for target in LINK.findall(text):
            path = target.split("#")[0]
            if path and "://" not in path and not (document.parent / path).exists():
                found.append(f"{where}: the link to {target} leads nowhere")
    return found
