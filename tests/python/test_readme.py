# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The examples of the README and of the guide print what they say."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import WAIT_S

ROOT = pathlib.Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))


def blocks(page: pathlib.Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.S)


# The blocks of a page are one program.
PROGRAMS = [(page.stem, "\n".join(blocks(page))) for page in (README, *GUIDE)]


@pytest.mark.parametrize(
    "program", [program for _, program in PROGRAMS], ids=[name for name, _ in PROGRAMS]
)
def test_the_example_prints_what_it_says(tmp_path, program):
    (tmp_path / "program.py").write_text(program)
    said = re.findall(r"print\(.*\)  # (.*)", program)
    environment = {**os.environ, "HOME": str(tmp_path)}  # Where training puts its results.
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        env=environment,
    )
    assert said and done.stdout.splitlines() == said, done.stderr


@pytest.mark.parametrize(
    ("page", "name"),
    [(README, "hello"), (ROOT / "docs" / "guide" / "training.md", "hello_training")],
)
def test_the_programs_in_cpp_are_those_that_run_as_examples(page, name):
    """Each prints what it says there: example_hello and example_hello_training among the tests."""
    (said,) = re.findall(r"```cpp\n(.*?)```", page.read_text(), re.S)
    # Behind the licence and a headline.
    program = (ROOT / "examples" / "cpp" / f"{name}.cc").read_text().split("\n", 2)[2]
    assert said == program
