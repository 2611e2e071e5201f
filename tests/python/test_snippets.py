# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Every snippet of every document works: it is part of a program that runs here and prints what its
comments say, or it is quoted from a file that other tests run. Every command exists."""

import functools
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import WAIT_S
from sheaf import _core

ROOT = pathlib.Path(__file__).parents[2]
BUILT = pathlib.Path(_core.__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
# The blocks of these pages are one program each; those of the others are quoted.
PROGRAMS = {
    "python": [
        ROOT / "README.md",
        *GUIDE,
        ROOT / "docs" / "cross_language.md",
        ROOT / "docs" / "data_for_spark.md",
    ],
    "cpp": [ROOT / "README.md", *GUIDE],
}
IN_CPP = {"README": "hello", "training": "hello_training", "cpp": "guide"}
QUOTED = [
    path
    for folder in ("examples", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".cc", ".h")
]


def blocks(page: pathlib.Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.S | re.M)


def name_of(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


def with_blocks(language: str) -> list[pathlib.Path]:
    return [page for page in PROGRAMS[language] if blocks(page, language)]


def run(command: list[str], folder: pathlib.Path) -> list[str]:
    environment = {**os.environ, "HOME": str(folder)}  # Where training puts its results.
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * WAIT_S, env=environment, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("page", with_blocks("python"), ids=name_of)
def test_the_program_in_python_prints_what_it_says(tmp_path, page):
    program = "\n".join(blocks(page, "python"))
    for library in re.findall(r"^import (\w+)$", program, re.M):
        pytest.importorskip(library)  # What Sheaf does not need.
    if re.search(r"^from sheaf import .*\bdata\b", program, re.M):
        pytest.importorskip("pyarrow")
    if "data.sql(" in program:
        pytest.importorskip("duckdb")
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "libapp.so").symlink_to(BUILT / "tests/python/libcross_language.so")
    said = re.findall(r"print\(.*\)  # (.*)", program)
    assert said and run([sys.executable, "program.py"], tmp_path) == said


@pytest.mark.parametrize("page", with_blocks("cpp"), ids=name_of)
def test_the_program_in_cpp_prints_what_it_says(tmp_path, page):
    """It is one of examples/cpp, which is built."""
    example = IN_CPP[page.stem]
    program = "\n".join(blocks(page, "cpp"))
    # Behind the licence and a headline.
    assert program == (ROOT / f"examples/cpp/{example}.cc").read_text().split("\n", 2)[2]
    said = re.findall(r'"\\n";\s+// (.*)', program)
    assert said and run([str(BUILT / "examples" / example)], tmp_path) == said


def squashed(code: str) -> str:
    """Without white space, as a page breaks lines elsewhere than a file whose code is indented."""
    return re.sub(r",(?=[)\]}])", "", "".join(code.split()))


def test_what_is_no_program_is_quoted_from_one():
    files = [squashed(path.read_text()) for path in QUOTED]
    for language, programs in PROGRAMS.items():
        for page in sorted(set(DOCUMENTS) - set(programs)):
            for block in blocks(page, language):
                assert any(squashed(block) in file for file in files), (
                    f"{name_of(page)}: no file of examples/ or tests/ has this:\n{block}"
                )


def test_other_blocks_are_pictures():
    for page in DOCUMENTS:
        fences = re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(), re.S | re.M)
        for language, text in fences:
            if page.name == "operate.md" and language == "sh":  # test_tour.py runs these.
                continue
            assert language in ("", "python", "cpp"), f"{name_of(page)}: ```{language}"
            if not language:
                assert not re.search(r"^(import|from|#include|\$|\./do|sheaf) ", text, re.M), (
                    f"{name_of(page)}: is this a picture?\n{text}"
                )


def commands(program: str) -> list[tuple[str, list[str]]]:
    """(document, words) of each `PROGRAM ...` in indented lines and in backticks."""
    found = []
    for page in DOCUMENTS:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
        lines = re.findall(rf"^ {{4}}({re.escape(program)} .*)$", text, re.M)
        lines += re.findall(rf"`({re.escape(program)} [^`\n]*)`", text)
        found += [(name_of(page), line.partition(" #")[0].split()[1:]) for line in lines]
    return found


@functools.cache
def help_of(*command: str) -> str:
    done = subprocess.run(
        [BUILT / "cli" / "sheaf", *command, "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "SHEAF_PYTHON": sys.executable},
    )
    assert done.returncode == 0, f"there is no command: sheaf {' '.join(command)}"
    return done.stdout


def test_commands_of_sheaf_have_the_flags_that_documents_give_them():
    found = commands("sheaf")
    assert len(found) > 30
    for page, (command, *words) in found:
        if command.startswith("-") or command.isupper():
            continue
        if command == "run":  # Behind the script all belongs to that.
            words = words[: next((i for i, w in enumerate(words) if w[0] != "-"), None)]
        has_parts = command == "job" or "SUBCOMMAND" in help_of(command)  # The first is Python's.
        text = help_of(command, words[0]) if has_parts and words else help_of(command)
        for flag in re.findall(r"--[a-z][a-z-]*", " ".join(words)):
            assert flag in text, f"{page}: sheaf {command} has no {flag}"


def test_commands_of_do_exist():
    usage = subprocess.run([ROOT / "do"], capture_output=True, text=True).stdout
    known = set(re.findall(r"^  ([a-z]+) ", usage, re.M))
    targets = (BUILT / "build.ninja").read_text()
    found = commands("./do")
    assert len(found) > 20
    for page, words in found:
        if words[0] == "build":
            for name in filter(str.islower, words[1:]):
                assert f"build {name}:" in targets, f"{page}: there is no target {name}"
        if words[0] == "python" and "/" in words[1]:
            assert (ROOT / words[1]).exists(), f"{page}: there is no {words[1]}"
        assert words[0] in known or words[0].isupper(), f"{page}: ./do has no {words[0]}"
        flags = re.findall(r"--[a-z]+", " ".join(words)) if words[0] != "python" else []
        for flag in set(flags) - {"--json", "--peer", "--only", "--folder", "--ranks", "--torch"}:
            assert flag in usage, f"{page}: ./do {words[0]} has no {flag}"


def test_commands_of_helm_and_kubectl_name_what_the_chart_has():
    values = (ROOT / "deploy/helm/sheaf/values.yaml").read_text()
    heads = {}
    for page, words in commands("helm"):
        if words[0] != "install":  # `helm template`: its name, not a command line.
            continue
        _, release, chart, *flags = words
        assert (ROOT / chart / "Chart.yaml").exists(), f"{page}: there is no chart {chart}"
        given = dict(zip(flags, flags[1:], strict=False))
        if file := given.get("--values"):
            assert (ROOT / file).exists(), f"{page}: there is no {file}"
        *folders, name = given["--set"].partition("=")[0].split(".")
        pattern = "".join(rf"^{folder}:\n(?:  .*\n)*?  " for folder in folders) + f"{name}:"
        assert re.search(pattern, values, re.M), f"{page}: the chart has no value {given['--set']}"
        heads[page, given["--namespace"]] = f"{release}-sheaf-head"
    asked = [(page, words) for page, words in commands("kubectl") if len(words) > 2]
    assert len(heads) == 2 and len(asked) == 5
    for page, (_, namespace, *words) in asked:
        named = next(word for word in words if "sheaf-head" in word).rpartition("/")[2]
        head = heads[page, namespace]
        assert named in (head, f"{head}-0"), f"{page}: the chart makes no {named}, but {head}"


def test_programs_of_the_build_that_documents_name_exist():
    targets = (BUILT / "build.ninja").read_text()
    for page in DOCUMENTS:
        for program in re.findall(r"^ {4}build/([\w/]+)", page.read_text(), re.M):
            assert f"build {program}:" in targets, f"{name_of(page)}: nothing makes build/{program}"
