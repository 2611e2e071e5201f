# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the modules of the Python package import of each other. There is no circle, and folders keep
to the rows of rules.PYTHON_FOLDERS, whatever an import is for: those inside functions count, and
those for type checkers alone. What a package's __getattr__ forwards by name does not."""

import ast
import collections
import dataclasses
import pathlib

import rules

PACKAGES = "python_bindings"  # The folder that holds the package.
PACKAGE = "sheaf"


@dataclasses.dataclass(frozen=True)
class Import:
    module: str  # "sheaf.actor"; of `from sheaf import actor`, too.
    line: int


def modules(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """The modules of the package below `root` by their names; "sheaf" is the package's own."""
    found = {}
    for path in sorted((root / PACKAGES / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root / PACKAGES).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(text: str, known: set[str]) -> list[Import]:
    """What a module of this text imports of those in `known`: by statements, and by calls of
    import_module with a string. A name of a package (`from sheaf import get`) is the package."""
    found = []
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in whole]
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("import_module")
            and isinstance(node.args[0], ast.Constant)
        ):
            names = [str(node.args[0].value)]
        found += [Import(name, node.lineno) for name in names if name in known]
    return found


def graph_of(root: pathlib.Path) -> dict[str, list[Import]]:
    """Module -> what it imports of the others."""
    paths = modules(root)
    # The extension is a module, too, and imports none.
    known = {*paths, f"{PACKAGE}._core"}
    return {
        name: [found for found in imports_of(path.read_text(), known) if found.module != name]
        for name, path in paths.items()
    }


def _way(graph: dict[str, list[Import]], start: str) -> list[Import]:
    """The shortest way from `start` back to it, as the imports on it; empty: there is none."""
    reached_by: dict[str, tuple[str, Import]] = {}
    queue = collections.deque([start])
    while queue:
        module = queue.popleft()
        for found in graph.get(module, []):
            if found.module in reached_by:
                continue
            reached_by[found.module] = (module, found)
            queue.append(found.module)
            if found.module == start:
                way, at = [], start
                while not way or at != start:
                    at, step = reached_by[at]
                    way.append(step)
                return way[::-1]
    return []


def circles(root: pathlib.Path) -> list[str]:
    """The circles of imports in the tree below `root`: one line each, each module in one of
    them."""
    graph, paths = graph_of(root), modules(root)
    found, told = [], set()
    for name in graph:
        way = [] if name in told else _way(graph, name)
        if way:
            told |= {step.module for step in way}
            found.append(
                f"{paths[name].relative_to(root)}:{way[0].line}: a circle of imports: "
                + " -> ".join([name, *(step.module for step in way)])
            )
    return found


def _folder(module: str) -> str:
    """Of rules.PYTHON_FOLDERS."""
    parts = module.split(".")[1:]
    return parts[0] if parts and parts[0] in {*rules.PYTHON_FOLDERS, "_core"} else "."


def imports_across(root: pathlib.Path) -> list[str]:
    """The imports in the tree below `root` that the rows do not have: one line each."""
    graph, paths = graph_of(root), modules(root)
    folders = sorted(
        {path.parent.name for path in paths.values() if path.parent.parent.name == PACKAGE}
    )
    found = [
        f"{PACKAGES}/{PACKAGE}/{folder}: no row of rules.PYTHON_FOLDERS"
        for folder in folders
        if folder not in rules.PYTHON_FOLDERS
    ]
    for name, imports in graph.items():
        own = _folder(name)
        for other in imports:
            folder = _folder(other.module)
            if folder not in rules.PYTHON_FOLDERS[own] | {own}:
                found.append(
                    f"{paths[name].relative_to(root)}:{other.line}: "
                    f"{PACKAGE}/{own} may not import {other.module}"
                )
    return found


def check(root: pathlib.Path) -> list[str]:
    """Both of the tree below `root`: one line each."""
    return circles(root) + imports_across(root)
