# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Row 31: children of all sorts, of a driver, a task and an actor on two nodes, while other threads
of theirs make calls. Only in ./do soak: its short form is tests/python/test_fork.py, whose storm
this is."""

import json
import os
import pathlib
import subprocess
import sys
import time

from node_cluster import WAIT_S, Cluster
from packet_switch import Missing

SHORT_FORM = pathlib.Path(__file__).resolve().parents[2] / "python"

DRIVER = """
import json
sheaf.init(address={session!r}, log_to_driver=False)

@sheaf.remote(num_cpus=0.5, max_retries=0, resources={{"n3": 1}})
def task(times):
    return storm(times), os.getpid()

@sheaf.remote(num_cpus=0.5, max_restarts=0, resources={{"n3": 1}})
class Actor:
    def storm(self, times):
        return storm(times), os.getpid()

kept = sheaf.put(np.arange(1 << 18))
actor = Actor.remote()
calls = [task.remote({times}), actor.storm.remote({times})]
here = storm({times})
wrong = [here, *(wrong for wrong, _ in sheaf.get(calls, timeout={bound}))]
if not (sheaf.get(kept) == np.arange(1 << 18)).all():
    wrong.append(["an object was let go of by a child"])
print(json.dumps(wrong))
"""


def row_31(run):
    """No child hangs or waits for a lock that nobody holds, and the end of one takes nothing of its
    parent's with it."""
    times, bound = run.count(40, 1000), 3000
    sys.path.insert(0, str(SHORT_FORM))
    try:
        import test_fork
    except ImportError as error:
        raise Missing(f"the short form, {SHORT_FORM}/test_fork.py: {error}") from None
    with Cluster(seed=run.seed) as cluster:
        cluster.connect(2)
        begin = time.monotonic()
        program = test_fork.PROGRAM + DRIVER.format(
            session=cluster.nodes[2].session, times=times, bound=bound
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=bound + 2 * WAIT_S,
            env=os.environ.copy(),
        )
        assert done.returncode == 0, done.stderr[-3000:]
        wrong = json.loads(done.stdout.splitlines()[-1])
        assert wrong == [[], [], []], wrong
        assert cluster.is_alive(2) and cluster.is_alive(3)
        run.figures(
            f"{times} children each of a driver, a task and an actor on two nodes "
            "(15 of 20 forked, 4 by subprocess, 1 pool), of which half dropped all "
            "that "
            f"they shared and were refused calls, in {time.monotonic() - begin:.0f} "
            "s, other threads calling all the time: none hung, all values right"
        )
