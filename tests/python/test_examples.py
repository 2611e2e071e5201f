# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The programs of examples/python do what they say, and a type checker agrees with them."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest
import sheaf
from conftest import WAIT_S

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"

# What mypy must refuse, and what it must know.
WRONG = """
import sheaf
from sheaf.types import typed

@sheaf.remote
def double(x: int) -> int:
    return 2 * x

class Counter:
    @sheaf.method
    def add(self, amount: int) -> int:
        return amount

counter = typed(sheaf.remote(Counter).remote())
double.remote("text")  # 15
double.remote(1, 2)  # 16
counter.add.remote("text")  # 17
text: str = sheaf.get(double.remote(1))  # 18
other: str = sheaf.get(counter.add.remote(1))  # 19
double(1)  # 20
reveal_type(sheaf.get([double.remote(double.remote(1))]))
reveal_type(sheaf.wait([double.remote(1)])[0][0])
"""


def run(name, *arguments):
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=4 * WAIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_word_count_counts_words(tmp_path):
    for index, text in enumerate(["one two two", "Two, three!", "three one THREE"]):
        (tmp_path / f"{index}.txt").write_text(text)
    said = run("word_count.py", *sorted(map(str, tmp_path.iterdir())))
    assert said.splitlines()[0] == "8 words, 3 different, in 3 files"
    assert {line.split()[1]: int(line.split()[0]) for line in said.splitlines()[1:]} == {"two": 3, "three": 3, "one": 2}


def test_the_counter_counts():
    assert run("counter.py").splitlines() == ["[101, 102]", "after four tasks: 142", "a counter only grows"]


def test_digits_are_recognised():
    assert float(re.search(r"recognised: (0\.\d+)", run("digits.py")).group(1)) > 0.85


def mypy(*arguments):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed in this environment: pip install mypy")
    package = os.path.dirname(os.path.dirname(sheaf.__file__))
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", "--cache-dir=/dev/null", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=8 * WAIT_S, env={**os.environ, "MYPYPATH": package})


def test_mypy_accepts_the_examples():
    done = mypy(*sorted(map(str, EXAMPLES.glob("*.py"))))
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_wrong_calls_and_knows_results(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    done = mypy(str(tmp_path / "wrong.py"))
    errors = {int(line) for line in re.findall(r"wrong\.py:(\d+): error", done.stdout)}
    assert errors == {15, 16, 17, 18, 19, 20}, done.stdout + done.stderr
    revealed = [re.sub(r"builtins\.|sheaf\._core\.", "", word) for word in re.findall(r'Revealed type is "([^"]*)"', done.stdout)]
    assert revealed == ["list[int]", "ObjectRef[int]"]
