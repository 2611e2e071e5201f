# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The example of the README prints what it says."""

import pathlib
import re
import subprocess
import sys

from conftest import WAIT_S

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_the_example_prints_what_it_says(tmp_path):
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    (tmp_path / "program.py").write_text(program)
    said = re.findall(r"print\(.*\)  # (.*)", program)
    done = subprocess.run([sys.executable, tmp_path / "program.py"], capture_output=True, text=True, timeout=WAIT_S)
    assert said and done.stdout.splitlines() == said, done.stderr
