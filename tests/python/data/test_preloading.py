# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Workers of a job that uses sheaf.data are forked with pyarrow in memory."""

import subprocess
import sys

PROGRAM = """
import sys
import sheaf
import sheaf.data

sheaf.init(num_cpus=1, log_to_driver=False)

@sheaf.remote
def imported():
    return [name for name in ("pyarrow", "pyarrow.compute", "pyarrow.dataset") if name in sys.modules]

print(len(sheaf.get(imported.remote())))
"""


def test_workers_need_not_import_pyarrow():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert run.stdout.strip() == "3", run.stderr
