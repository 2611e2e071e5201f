# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a worker prints last is seen, though the program ends at once."""

import subprocess
import sys
import textwrap

import pytest
from conftest import WAIT_S


@pytest.mark.parametrize("end", ["sheaf.shutdown()", "", "raise SystemExit(0)"])
def test_lines_before_the_end_are_printed_once(end):
    text = f"""
        import sheaf

        @sheaf.remote
        def says():
            print("the last words")

        sheaf.init(num_cpus=1)
        sheaf.get(says.remote())
        {end}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("the last words") == 1
