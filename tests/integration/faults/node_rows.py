# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runs one fault row of several nodes: node_rows.py ROW. See node_cluster.py for what each row is
judged by.

  FAULT_SEED=N   replays a run; printed at the start
  FAULT_LONG=1   the long form; `./do soak`
  FAULT_COUNT=N  how many rounds or seconds, instead of what the form says
  FAULT_LOGS=FOLDER  keeps the nodes' logs there when a row fails

Where the right to make namespaces is missing it runs again inside `unshare -Ur`; where that fails
it says SKIPPED.
"""

import importlib
import os
import pathlib
import random
import subprocess
import sys
import time

from packet_switch import Missing

FOLDER = pathlib.Path(__file__).resolve().parent
# Row: its module, which has a function row_ROW.
ROWS = {
    "6": "rows_nodes",
    "8": "rows_raylets",
    "9": "rows_raylets",
    "10": "rows_lineage",
    "12": "rows_disk",
    "13": "rows_disk",
    "15": "rows_disk",
    "17": "rows_disk",
    "18": "rows_partitions",
    "19": "rows_links",
    "20": "rows_links",
    "21": "rows_links",
    "23": "rows_links",
    "24": "rows_links",
    "25": "rows_nodes",
    "29": "rows_memory",
    "30": "rows_clock",
    "31": "rows_forks",
    "32": "rows_signals",
    "33": "rows_scribble",
    "34": "rows_limits",
    "36": "rows_versions",
    "38": "rows_mixed",
    "apart": "rows_partitions",
    "fencing": "rows_fencing",
    "lease": "rows_lease",
    "ports": "rows_programs",
    "programs": "rows_programs",
}


class Run:
    """Of one row."""

    def __init__(self, row: str):
        self.row = row
        self.seed = int(os.environ.get("FAULT_SEED") or random.randrange(1, 1 << 32))
        self.random = random.Random(self.seed)
        self.long = os.environ.get("FAULT_LONG") == "1"

    def count(self, short: int, long: int) -> int:
        return int(os.environ.get("FAULT_COUNT") or (long if self.long else short))

    def figures(self, words: str) -> None:
        """One line that `./do soak` puts into its table."""
        print(f"row {self.row}: {words}", flush=True)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in ROWS:
        sys.exit(f"usage: node_rows.py ROW, one of {' '.join(ROWS)}")
    if (
        os.geteuid() != 0
        and subprocess.run(["unshare", "-Ur", "true"], capture_output=True, check=False).returncode
        == 0
    ):
        os.execvp("unshare", ["unshare", "-Ur", sys.executable, *sys.argv])
    # Workers find the functions of the rows, and Python, as this process does.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    run = Run(sys.argv[1])
    print(f"FAULT_SEED={run.seed}", flush=True)
    begin = time.monotonic()
    try:
        getattr(importlib.import_module(ROWS[run.row]), f"row_{run.row}")(run)
    except Missing as missing:
        print(f"SKIPPED: row {run.row}: {missing}", flush=True)
        return 0
    print(f"row {run.row} passed in {time.monotonic() - begin:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
