# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Workers of a job that uses sheaf.data are forked with pyarrow and sheaf.data in memory."""

import subprocess
import sys

PROGRAM = """
import sys
import sheaf
import sheaf.data

sheaf.init(num_cpus=1, log_to_driver=False)

@sheaf.remote
def imported():
    wanted = ("pyarrow", "pyarrow.compute", "pyarrow.dataset", "sheaf.data.tasks")
    return [name for name in wanted if name in sys.modules]

print(len(sheaf.get(imported.remote())))
sheaf.data.range(1000).map_batches(lambda batch: batch).materialize()
print("pandas" in sys.modules)
"""


def test_workers_need_not_import_pyarrow_nor_drivers_pandas():
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert run.stdout.split() == ["4", "False"], run.stderr


LATE = """
import sys
import sheaf

sheaf.init(num_cpus=2, log_to_driver=False)

@sheaf.remote(num_cpus=0)
class Worker:
    def imported(self):
        before = "pyarrow" in sys.modules
        import sheaf.data
        return before

workers = [Worker.remote()]
print(sheaf.get(workers[0].imported.remote()))
workers += [Worker.remote() for _ in range(8)]  # More than wait as spares.
print(sheaf.get([worker.imported.remote() for worker in workers[1:]])[-1])
"""


def test_a_worker_that_imports_it_late_has_it_imported_for_those_behind_it():
    run = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60)
    assert run.stdout.split() == ["False", "True"], run.stderr
