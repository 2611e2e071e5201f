# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What type checkers say, each where it is installed: mypy (strict) about the package and the
examples, pyright (strict) about the examples, and both about calls with wrong arguments.
pyproject.toml has their settings."""

import importlib.util
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import sheaf
from conftest import WAIT_S

ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ROOT / "python_bindings"
# Those whose packages are here: types of what is not installed are unknown.
EXAMPLES = sorted(
    str(path)
    for path in (ROOT / "examples" / "python").glob("*.py")
    if all(
        importlib.util.find_spec(name)
        for name in re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(), re.M)
    )
)

# Lines that a checker must refuse end in "# wrong".
WRONG = """
import sheaf
from sheaf.types import ObjectRef, typed

@sheaf.remote
def double(x: int) -> int:
    return 2 * x

@sheaf.remote(num_cpus=0)
def name(x: int, *, upper: bool = False) -> str:
    return str(x)

class Counter:
    def __init__(self, start: int):
        self.start = start

    @sheaf.method
    def add(self, amount: int) -> int:
        return amount

    @sheaf.method
    async def later(self, amount: float) -> list[float]:
        return [amount]

counter = typed(sheaf.remote(Counter).remote(1))
double.remote("text")  # wrong
double.remote(1, 2)  # wrong
double.options(num_cpus=2).remote("text")  # wrong
name.remote(1, upper=1)  # wrong
name.remote(1, lower=True)  # wrong
counter.add.remote("text")  # wrong
counter.later.remote("text")  # wrong
counter.absent.remote()  # wrong
text: str = sheaf.get(double.remote(1))  # wrong
other: str = sheaf.get(counter.add.remote(1))  # wrong
several: list[str] = sheaf.get([double.remote(1)])  # wrong
waited: list[ObjectRef[str]] = sheaf.wait([double.remote(1)])[0]  # wrong
put: str = sheaf.get(sheaf.put(1))  # wrong
double(1)  # wrong
fine: list[int] = sheaf.get([double.remote(double.remote(1)), counter.add.remote(2)])
named: str = sheaf.get(name.remote(1, upper=True))
floats: list[float] = sheaf.get(counter.later.remote(1.5))
"""


def mypy(*arguments):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("SKIPPED: mypy is not installed in this environment: pip install mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        f"--config-file={ROOT / 'pyproject.toml'}",
        "--no-error-summary",
        "--cache-dir=/dev/null",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=8 * WAIT_S, cwd=ROOT)


def pyright(folder, files):
    """The lines that it refuses, as (file, line, words)."""
    program = shutil.which(
        "pyright",
        path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]),
    )
    if program is None:
        pytest.skip(
            "SKIPPED: pyright is not installed in this environment: pip install pyright[nodejs]"
        )
    settings = {
        "typeCheckingMode": "strict",
        "include": files,
        "extraPaths": [str(PACKAGES)],
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [program, "--outputjson", "--project", str(folder), "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=8 * WAIT_S)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [
        (pathlib.Path(one["file"]).name, one["range"]["start"]["line"] + 1, one["message"])
        for one in found
        if one["severity"] == "error"
    ]


def wrong_lines():
    return {number for number, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}


def test_there_are_examples_to_check():
    assert {"counter.py", "digits.py", "word_count.py"} <= {
        os.path.basename(path) for path in EXAMPLES
    }


def test_mypy_accepts_the_package():
    done = mypy()
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_the_examples():
    done = mypy(*EXAMPLES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_finds_wrong_calls(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    done = mypy(str(tmp_path / "wrong.py"))
    assert {
        int(line) for line in re.findall(r"wrong\.py:(\d+): error", done.stdout)
    } == wrong_lines(), done.stdout + done.stderr


def test_pyright_accepts_the_examples(tmp_path):
    assert pyright(tmp_path, EXAMPLES) == []


def test_pyright_finds_wrong_calls(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    found = pyright(tmp_path, ["wrong.py"])
    assert {line for _, line, words in found if "is not accessed" not in words} == wrong_lines(), (
        found
    )


@sheaf.remote
def documented(first: int, *, second: str = "x") -> list[str]:
    """What it does."""
    return [second] * first


@sheaf.remote
class Documented:
    """What it is."""

    def __init__(self, start: int = 0):
        """How it begins."""

    def method(self, amount: float) -> str:
        """What it does with it."""
        return str(amount)


def test_signatures_and_docstrings_survive_on_remote():
    signature = "(first: 'int', *, second: 'str' = 'x') -> 'list[str]'"
    wanted = str(inspect.signature(documented._function))
    assert wanted.replace("'", "") == signature.replace("'", "").replace("= x", "= x")
    for function in documented, documented.remote, documented.options(num_cpus=2).remote:
        assert str(inspect.signature(function)) == wanted
        assert inspect.getdoc(function) == "What it does."
    assert documented.remote.__name__ == "documented"
    assert inspect.getdoc(Documented) == inspect.getdoc(Documented.remote) == "What it is."
    assert "start: " in str(inspect.signature(Documented.remote))


@pytest.mark.usefixtures("node")
def test_those_of_methods_survive_too():
    actor = Documented.remote()
    assert (
        inspect.getdoc(actor.method)
        == inspect.getdoc(actor.method.remote)
        == "What it does with it."
    )
    assert list(inspect.signature(actor.method.remote).parameters) == ["amount"]
