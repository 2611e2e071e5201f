# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""./do lint --record: how large the parts of the sources are, beside what a review found before they
were split, into docs/evidence/structure.md."""

import ast
import collections
import pathlib
import re
import statistics
import sys

import measures
import python_imports
import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import evidence  # noqa: E402

# What the review counted on 2026-11-22.
REVIEW = {
    "C++ files; lines": "524; 69,087",
    "lines of a C++ file: median, 90 %, largest": "96, 291, 572",
    "C++ functions over 70 lines; largest": "6 of 4,217; 97",
    "C++ test files; lines": "214; 35,899",
    "Python files of the package; lines": "107; 11,176",
    "lines of a Python file: median, 90 %, largest": "82, 248, 394",
    "methods of the largest classes": "Raylet 167, RuntimeImpl 105, StoreOwner 71, LeaseQueue 66",
    "fields of Raylet": "66",
    "most parameters of a constructor; classes over 6": "8; 5",
    "files of the largest folders": "raylet 133, collective 78, gcs 63, worker 55, sheaf/ 51",
    "import circles of Python": "one, of 16 modules",
    "mutexes; members that name theirs": "34; 0",
    "sleeps in tests: Python, C++": "123, 33",
    "public Python functions with Args": "3",
}


def spread(lines: list[int]) -> str:
    ordered = sorted(lines)
    return f"{statistics.median_low(ordered)}, {ordered[len(ordered) * 9 // 10]}, {ordered[-1]}"


def fields_of(header: str, name: str) -> int:
    """Members of a class: what ends in `_;`, or is initialised where it is declared."""
    body = header[header.index(f"class {name} ") :]
    return len(re.findall(r"^  [^()\n/]*\b\w+_(?: ABSL_\w+\([^)]*\))?(?:;| = |\{)", body, re.M))


def cpp() -> dict[str, str]:
    code_lines, test_lines, folders = [], [], collections.Counter()
    methods, functions, longest, mutexes, guarded, sleeps = collections.Counter(), [], {}, 0, 0, 0
    for path in rules.sources(ROOT):
        text = (ROOT / path).read_text()
        lines = text.count("\n")
        if rules.is_test(path):
            test_lines.append(lines)
            sleeps += len(re.findall(r"sleep_for|\busleep\(|SleepFor", text))
            continue
        code_lines.append(lines)
        folders[str(path.parent)] += 1
        code = rules.strip(text)
        mutexes += len(re.findall(r"^\s+(?:mutable )?(?:Mutex|RecursiveMutex) \w+;", code, re.M))
        guarded += len(re.findall(r"ABSL_(?:PT_)?GUARDED_BY", code))
        for function in measures.functions_of(code):
            scope, _, name = function.name.rpartition("::")
            functions.append(function.lines)
            if scope:
                methods[scope] += 1
            if scope and name == scope.rpartition("::")[2]:
                longest[scope] = max(function.parameters, longest.get(scope, 0))
    largest = ", ".join(f"{name} {count}" for name, count in methods.most_common(4))
    most = ", ".join(f"{name} {count}" for name, count in folders.most_common(5))
    raylet = (ROOT / "raylet/raylet.h").read_text()
    return {
        "C++ files; lines": f"{len(code_lines)}; {sum(code_lines):,}",
        "lines of a C++ file: median, 90 %, largest": spread(code_lines),
        "C++ functions over 70 lines; largest": f"{sum(n > 70 for n in functions)} of "
        f"{len(functions):,}; {max(functions)}",
        "C++ test files; lines": f"{len(test_lines)}; {sum(test_lines):,}",
        "methods of the largest classes": f"{largest}; Raylet {methods['Raylet']}",
        "fields of Raylet": str(fields_of(raylet, "Raylet")),
        "most parameters of a constructor; classes over 6": f"{max(longest.values())}; "
        f"{sum(n > 6 for n in longest.values())}",
        "files of the largest folders": most,
        "mutexes; members that name theirs": f"{mutexes}; {guarded}",
        "sleeps in tests: Python, C++": f"{python_sleeps()}, {sleeps}",
    }


def python_sleeps() -> int:
    return sum(
        len(re.findall(r"time\.sleep\(", path.read_text()))
        for path in (ROOT / "tests").rglob("*.py")
        if "peer" not in path.parts
    )


def python() -> dict[str, str]:
    files = sorted((ROOT / "python_bindings/sheaf").rglob("*.py"))
    lines = [path.read_text().count("\n") for path in files]
    told = public = 0
    for path in files:
        if any(part.startswith("_") and part != "__init__.py" for part in path.parts):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                named = node.args.args + node.args.kwonlyargs
                public += bool(named)
                told += bool(named) and "Args:" in (ast.get_docstring(node) or "")
    return {
        "Python files of the package; lines": f"{len(files)}; {sum(lines):,}",
        "lines of a Python file: median, 90 %, largest": spread(lines),
        "import circles of Python": str(len(python_imports.circles(ROOT))),
        "public Python functions with Args": f"{told} of {public} that take some",
    }


if __name__ == "__main__":
    now = {**cpp(), **python()}
    rows = [[what, then, now[what]] for what, then in REVIEW.items()]
    evidence.record(ROOT / "docs/evidence/structure.md", "structure", rows, sort=False)
