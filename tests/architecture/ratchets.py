# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What is bounded in size, and the places that are over a bound today. Their numbers only fall: a
place that has become smaller than its entry here, or is within the bound, fails the check until the
entry is lowered or taken out; a new one is never added."""

import collections
import pathlib
import re

import measures
import rules

# Bound -> what the places over it have today.
LIMITS: dict[str, int] = {
    "lines of a file": 500,
    "lines of a function": 70,
    "parameters of a constructor": 6,
    "methods of a class": 60,
    "files of a folder": 45,
    "mutexes that say nothing of what they guard": 0,
    "identifiers in comments that do not exist": 0,
}

TODAY: dict[str, dict[str, int]] = {
    "lines of a file": {},
    "lines of a function": {},
    "parameters of a constructor": {
        "AttachServer": 8,
        "ObjectResolver": 9,
        "StoreClient": 7,
        "TaskExecutor": 9,
    },
    "methods of a class": {"ReferenceTable": 68, "RuntimeImpl": 91, "TaskTable": 66},
    "files of a folder": {"base": 53, "tests/sim": 47},
    "mutexes that say nothing of what they guard": {
        "collective/operation_line.h running": 1,  # A turn: it guards no field.
        "worker/driver.h mutex": 1,
        "worker/driver.h mutex_": 1,
    },
    "identifiers in comments that do not exist": {},
}


# Names of others that comments may speak of.
ELSEWHERE = {
    "BackwardThroughLayer1",
    "BackwardThroughLayer2",  # A reader's own, in an example.
    "NaNs",
    "SplitMix64",
    "SslServerCredentials",
    "kUnimplemented",
}


def _identifiers_of_comments(text: str) -> set[str]:
    comments = " ".join(re.findall(r"//[^\n]*|/\*.*?\*/", text, flags=re.S))
    comments = re.sub(r"https?://\S+|\"[^\"\n]*\"", " ", comments)
    return set(re.findall(r"\bk[A-Z]\w+\b|\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b", comments))


def count(root: pathlib.Path) -> dict[str, dict[str, int]]:
    """For each measure of LIMITS, the places over its bound with their numbers."""
    found: dict[str, dict[str, int]] = {name: {} for name in LIMITS}
    methods: collections.Counter[str] = collections.Counter()
    folders: collections.Counter[str] = collections.Counter()
    known, said = set(), {}

    def note(measure: str, place: str, number: int) -> None:
        if number > LIMITS[measure]:
            found[measure][place] = max(number, found[measure].get(place, 0))

    for path in rules.sources(root):
        text = (root / path).read_text()
        code = rules.strip(text)
        folders[str(path.parent)] += 1
        note("lines of a file", str(path), text.count("\n"))
        known |= set(re.findall(r"\w+", code)) | set(re.findall(r'"(\w+)', text))
        said[str(path)] = _identifiers_of_comments(text)
        if rules.is_test(path):
            continue
        for function in measures.functions_of(code):
            scope, _, name = function.name.rpartition("::")
            note("lines of a function", f"{path} {function.name}", function.lines)
            if scope:
                methods[scope] += 1
            if name == scope.rpartition("::")[2]:
                note("parameters of a constructor", scope, function.parameters)
        for mutex in re.findall(
            r"^\s+(?:mutable\s+|static\s+)?(?:std::mutex|Mutex|RecursiveMutex)\s+(\w+);",
            code,
            flags=re.M,
        ):
            if str(path) == "base/mutex.h":
                continue
            if not re.search(rf"ABSL_(?:PT_)?GUARDED_BY\({mutex}\)", code):
                note("mutexes that say nothing of what they guard", f"{path} {mutex}", 1)
    for name, number in methods.items():
        note("methods of a class", name, number)
    for folder in (
        sorted((root / "python_bindings").rglob("*.py"))
        if (root / "python_bindings").is_dir()
        else []
    ):
        folders[str(folder.parent.relative_to(root))] += 1
    for folder, number in folders.items():
        note("files of a folder", folder, number)
    for path in [
        *(root / "proto").glob("*.proto"),
        *(root / "python_bindings").rglob("*.py"),
        *root.rglob("*.pml"),
        *(root / "cmake").glob("*"),
    ]:
        if path.is_file():
            known |= set(re.findall(r"\w+", path.read_text()))
    for path, names in said.items():
        for name in sorted(
            name for name in names - known - ELSEWHERE if name.removesuffix("s") not in known
        ):
            note("identifiers in comments that do not exist", f"{path} {name}", 1)
    return found


def check(root: pathlib.Path) -> list[str]:
    """What in the tree below `root` is over a bound and not known, or better than what is known:
    one line each."""
    wrong = []
    for measure, places in count(root).items():
        known = TODAY[measure]
        for place, number in sorted(places.items()):
            if place not in known:
                wrong.append(f"{place}: {measure}: {number}, at most {LIMITS[measure]}")
            elif number > known[place]:
                wrong.append(
                    f"{place}: {measure}: {number}, and it was {known[place]}, which may only fall"
                )
        for place, number in sorted(known.items()):
            if places.get(place, 0) < number:
                wrong.append(
                    f"{place}: {measure}: {places.get(place, 'within the bound')} "
                    f"now: lower its entry in ratchets.py, which says {number}"
                )
    return wrong
