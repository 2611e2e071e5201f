# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The program of a worker: `python -P worker_start.py JSON`, started by the node.

The first one of a job imports what workers need, then forks the others on request (base/worker_template.h).
"""

import json
import sys

START = json.loads(sys.argv[1])
sys.path[:] = START["path"]
sys.argv[:] = START["argv"]

from sheaf import worker_main  # noqa: E402 (the path comes first)

if START["as_ray"]:
    import sheaf.as_ray  # noqa: F401

if __name__ == "__main__":
    worker_main.main(START)
