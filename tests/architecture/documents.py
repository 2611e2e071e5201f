# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What documents name exists: the files in backticks of those that say how Sheaf is built, and the
targets of links in all; docs/errors.md has each exception once. docs/configuration.md is written by
`python3 tests/architecture/documents.py`, from base/config.h."""

import fnmatch
import pathlib
import re
import subprocess
import sys

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
    """All paths of the tree, folders too, as git sees them; of a tree without git, what lies
    there."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
        found = {pathlib.PurePosixPath(line) for line in listed.stdout.splitlines()}
    else:
        found = {
            pathlib.PurePosixPath(path.relative_to(root))
            for path in root.rglob("*")
            if path.is_file()
        }
    return sorted({str(path) for file in found for path in (file, *file.parents)} - {"."})


def names_a_path(token: str) -> bool:
    return PATH.fullmatch(token) is not None and (
        token.endswith(ENDINGS) or ("/" in token and token.split("/")[0] != "")
    )


SETTING = re.compile(r"((?:  // .*\n)+)  [\w:<>]+ \w+( = [^;]+)?;")
DEFAULTS = {"true": "1", "false": "0", "LogLevel::kInfo": "info"}


def configuration(root: pathlib.Path) -> str:
    """docs/configuration.md, from the comments of `Settings` in base/config.h."""
    header = (root / "base/config.h").read_text()
    rows = []
    for comment, default in SETTING.findall(
        header[header.index("struct Settings") : header.index("  // Variables that begin")]
    ):
        words = " ".join(line.strip().removeprefix("// ") for line in comment.strip().splitlines())
        name, _, text = words.partition(": ")
        text = text.replace("<", "&lt;")
        value = default.removeprefix(" = ").strip('"')
        if shifted := re.fullmatch(r"(?:int64_t{)?(\d+)}? << (\d+)", value):
            value = (
                f"{int(shifted[1]) << (int(shifted[2]) % 10)} "
                f"{['', 'KiB', 'MiB', 'GiB'][int(shifted[2]) // 10]}"
            ).strip()
        rows.append(f"| `{name}` | {DEFAULTS.get(value, value)} | {text} |")
    return "\n".join(
        [
            "# Configuration",
            "",
            "Settings that a process takes from its environment; what is given in "
            "code (`sheaf.init`, `sheaf::Init`) or on the command line",
            "(`sheaf start --help`) overrides them. A node's are read when it "
            "starts. An unknown variable that begins with SHEAF_ is warned of.",
            "Written from `base/config.h` by `python3 tests/architecture/documents.py`.",
            "",
            "| variable | default | meaning |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


def exceptions_not_in_errors(root: pathlib.Path) -> list[str]:
    """Of sheaf.exceptions, those that docs/errors.md has not, or has more than once, at the
    beginning of a row. Their base needs none, nor does what leaves an actor (a BaseException)."""
    names = re.findall(
        r"^class (\w+)\((?!enum|BaseException)",
        (root / "python_bindings/sheaf/exceptions.py").read_text(),
        re.M,
    )
    rows = [
        row.split("|")[1]
        for row in (root / "docs/errors.md").read_text().splitlines()
        if row.startswith("| ")
    ]
    listed = [name for row in rows for name in re.findall(r"\w+", row)]
    return [name for name in names if name != "RayError" and listed.count(name) != 1]


def check(root: pathlib.Path) -> list[str]:
    tree = files(root)
    top = {path.split("/")[0] for path in tree}

    def exists(token: str) -> bool:
        # From the root, or the end of a path (`ring.h`); `rpc/link_state` stands for all of that
        # name.
        patterns = (token.rstrip("/"), token.rstrip("/") + ".*", "*/" + token.rstrip("/"))
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns for path in tree)

    found = []
    for document in documents(root):
        where = document.relative_to(root)
        text = FENCE.sub("", document.read_text())
        if where.name == "ARCHITECTURE.md" or where.parts[:2] == ("docs", "design"):
            for token in CODE.findall(INDENTED.sub("", text)):
                is_path = names_a_path(token) and (
                    token.endswith(ENDINGS) or token.split("/")[0] in top
                )
                if is_path and not exists(token):
                    found.append(f"{where}: `{token}` is no file of the tree")
        for target in LINK.findall(text):
            path = target.split("#")[0]
            if path and "://" not in path and not (document.parent / path).exists():
                found.append(f"{where}: the link to {target} leads nowhere")
    return found


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parents[2]
    (here / "docs/configuration.md").write_text(configuration(here))
    sys.exit("\n".join(check(here)))
