# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What documents name exists: the files in backticks of those that say how Sheaf is built, and the
targets of links in all; docs/errors.md has each exception once; tables of docs/evidence stand between
the marks behind which commands write. docs/configuration.md is written by `python3
tests/architecture/documents.py`, from base/config.h."""

import fnmatch
import pathlib
import re
import subprocess
import sys

CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.S | re.M)
INDENTED = re.compile(r"^    .*$", re.M)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"\bdocs/[\w/]+\.md\b")  # In comments and other text, too.
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


# Read by the Python package alone.
OF_PYTHON = [
    (
        "SHEAF_PYTHON",
        "python3",
        "the Python that `sheaf run` and `sheaf job` become, and that a node makes the "
        "environments of jobs with.",
    ),
    (
        "SHEAF_RAY_VERSION",
        "",
        "what `ray.__version__` of the alias is, for a library that wants another version of Ray than "
        "`sheaf.__ray_version__`.",
    ),
    (
        "SHEAF_DEDUP_LOGS",
        "1",
        "1: equal lines of several workers appear once at the driver, with their number; 0: all appear.",
    ),
    (
        "SHEAF_CLUSTER",
        "",
        'the address that `init("auto")` takes; `cluster_utils.Cluster` sets it while its head lives.',
    ),
]
# Of OpenTelemetry, read by cli/otlp/settings.cc. What stands for traces alone counts before what stands for all signals.
OF_OPENTELEMETRY = [
    (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "",
        "where a node sends the spans of its calls ([tracing.md](tracing.md)), a whole URL. https://; or http:// where it is this machine's.",
    ),
    (
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "",
        "the same, without the path `/v1/traces`. Empty, as the one above: no spans are sent.",
    ),
    (
        "OTEL_EXPORTER_OTLP_HEADERS",
        "",
        "`NAME=VALUE,...`, percent-encoded, for each request; or `OTEL_EXPORTER_OTLP_TRACES_HEADERS`.",
    ),
    (
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
        "",
        "a PEM file with the certificates that the receiver's must come from; or `OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE`. Empty: the system's.",
    ),
    (
        "OTEL_EXPORTER_OTLP_TIMEOUT",
        "10000",
        "for how many milliseconds a request is waited for; or `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT`.",
    ),
    (
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "http/protobuf",
        "nodes speak no other; or `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`.",
    ),
    ("OTEL_SERVICE_NAME", "sheaf", "`service.name` of the spans."),
    ("OTEL_RESOURCE_ATTRIBUTES", "", "further attributes of the node, `NAME=VALUE,...`."),
    (
        "OTEL_TRACES_SAMPLER",
        "parentbased_traceidratio",
        "which traces are sent: `always_on`, `always_off`, `traceidratio`, or one of these behind `parentbased_`: a user's trace then as its own flag says.",
    ),
    (
        "OTEL_TRACES_SAMPLER_ARG",
        "1",
        "the part of all traces that `traceidratio` sends, from 0 to 1.",
    ),
    (
        "OTEL_TRACES_EXPORTER",
        "otlp",
        "`none`: no spans are sent. A list without `otlp`: none either, and the log says so.",
    ),
    ("OTEL_SDK_DISABLED", "false", "`true`: no spans are sent."),
]


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
    rows += [
        f"| `{name}` | {default} | {text} |" for name, default, text in OF_PYTHON + OF_OPENTELEMETRY
    ]
    return "\n".join(
        [
            "# Configuration",
            "",
            "Settings that a process takes from its environment; what is given in "
            "code (`sheaf.init`, `sheaf::Init`) or on the command line",
            "(`sheaf start --help`) overrides them. A node reads its own when it starts. "
            "A variable that begins with SHEAF_ and is not here is warned",
            "of. Sizes are bytes, or as `512MiB` and `1.5GiB`.",
            "",
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
    beginning of a row (their base needs none, nor does what leaves an actor, a BaseException); of
    ErrorKind, those that it does not name."""
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
    wrong = [name for name in names if name != "RayError" and listed.count(name) != 1]
    header = (root / "api/include/sheaf/errors.h").read_text()
    kinds = set(re.findall(r"^  (k\w+) = \d+", header, re.M)) - {"kNone"}
    return wrong + sorted(kinds - set(re.findall(r"k\w+", (root / "docs/errors.md").read_text())))


EVIDENCE_TABLE = re.compile(r"<!-- rows: \w+ -->\n(.*?)<!-- end of rows -->\n", re.S)
LONGEST_CELL = 120


def evidence(root: pathlib.Path) -> list[str]:
    """What is wrong with the pages of docs/evidence: a row that no command has written, a cell that
    tells a story."""
    found = []
    for page in sorted(root.glob("docs/evidence/*.md")):
        text = page.read_text()
        where = page.relative_to(root)
        if "./do " not in text:
            found.append(f"{where}: it does not name the command that writes it")
        for line in EVIDENCE_TABLE.sub("", text).splitlines():
            if line.startswith("|"):
                found.append(f"{where}: outside of the marks of tools/evidence.py: {line[:60]}")
        for row in "".join(EVIDENCE_TABLE.findall(text)).splitlines():
            if longest := [cell for cell in row.split("|") if len(cell.strip()) > LONGEST_CELL]:
                found.append(f"{where}: a cell of {len(longest[0])} characters: {longest[0][:60]}")
    return found


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and tools/docs/site.py make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


LONGEST_README = 100


def readme(root: pathlib.Path) -> list[str]:
    """What is wrong with README.md: its length, or a figure that docs/evidence does not have."""
    page, measured = root / "README.md", root / "docs/evidence/benchmarks_python.md"
    if not page.exists() or not measured.exists():
        return []
    found = []
    lines = page.read_text().splitlines()
    if len(lines) > LONGEST_README:
        found.append(f"README.md: {len(lines)} lines, at most {LONGEST_README}")
    rows = [set(re.split(r" *\| *", row)) for row in measured.read_text().splitlines()]
    for line in lines:
        figures = set(re.findall(r"\| ([\d,.]+) (?=\|)", line))
        if figures and not any(figures <= row for row in rows):
            found.append(f"README.md: docs/evidence has no row with {', '.join(sorted(figures))}")
    return found


def named(root: pathlib.Path, tree: list[str]) -> list[str]:
    """Documents that any file names and that are not there."""
    found = []
    for path in tree:
        if path.endswith((*ENDINGS, ".sh", ".cmake")) or path == "do":
            if path.startswith("tests/architecture/") or not (root / path).is_file():
                continue
            for name in sorted(set(NAMED.findall((root / path).read_text(errors="replace")))):
                if name not in tree:
                    found.append(f"{path}: there is no {name}")
    return found


MOST_PICTURES, PICTURE_BYTES = 6, 120 << 10


def pictures(root: pathlib.Path) -> list[str]:
    """What is wrong with docs/pictures, which a clone has to carry for good: too many, too large, or
    shown by no document."""
    there = sorted((root / "docs/pictures").glob("*"))
    shown = {
        (document.parent / target).resolve()
        for document in documents(root)
        for target in LINK.findall(document.read_text())
    }
    found = [f"docs/pictures: {len(there)}, at most {MOST_PICTURES}"] * (len(there) > MOST_PICTURES)
    for picture in there:
        where = picture.relative_to(root)
        if picture.stat().st_size > PICTURE_BYTES:
            found.append(f"{where}: {picture.stat().st_size} bytes, at most {PICTURE_BYTES}")
        if picture.resolve() not in shown:
            found.append(f"{where}: no document shows it")
    return found


def check(root: pathlib.Path) -> list[str]:
    tree = files(root)
    top = {path.split("/")[0] for path in tree}

    def exists(token: str) -> bool:
        # From the root, or the end of a path (`ring.h`); `rpc/link_state` stands for all of that
        # name.
        patterns = (token.rstrip("/"), token.rstrip("/") + ".*", "*/" + token.rstrip("/"))
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns for path in tree)

    found = evidence(root) + readme(root) + named(root, tree) + pictures(root)
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
            path, _, anchor = target.partition("#")
            if "://" in path:
                continue
            to = document.parent / path if path else document
            if not to.exists() or (
                anchor and to.suffix == ".md" and anchor not in slugs(to.read_text())
            ):
                found.append(f"{where}: the link to {target} leads nowhere")
    return found


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parents[2]
    (here / "docs/configuration.md").write_text(configuration(here))
    sys.exit("\n".join(check(here)) or 0)
