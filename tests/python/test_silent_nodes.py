# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A node is not heard while the GCS is away too: nobody can say whether it is dead, and waits for
it end in words all the same."""

import os
import signal
import threading

import sheaf
from conftest import WAIT_S
from sheaf.cluster_utils import Cluster
from sheaf.exceptions import GetTimeoutError
from test_head_state import gcs_of

LIMIT_S = 20  # The least.


@sheaf.remote(resources={"b": 1})
def made_when(path):
    while not os.path.exists(path):
        pass
    return 7


def test_get_and_wait_end_and_go_on_when_it_is_heard_again(monkeypatch, tmp_path):
    sheaf.shutdown()
    monkeypatch.setenv("SHEAF_SILENCE_LIMIT", str(LIMIT_S))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    stopped = []
    try:
        here = cluster.add_node(num_cpus=1)
        there = cluster.add_node(num_cpus=1, resources={"b": 1})
        cluster.wait_for_nodes()
        sheaf.init(address=here.session, log_to_driver=False)
        mine = sheaf.put("mine")
        made = made_when.remote(str(tmp_path / "go"))
        assert sheaf.wait([made], timeout=1) == ([], [made])  # It has begun.
        for process in (cluster.head_node.os_pid, gcs_of(cluster.head_node), there.os_pid):
            os.kill(process, signal.SIGSTOP)
            stopped.append(process)
        words = {}

        def say(name, call):
            try:
                words[name] = call()
            except GetTimeoutError as error:
                words[name] = str(error)

        threads = [
            threading.Thread(target=say, args=("get", lambda: sheaf.get(made))),
            threading.Thread(
                target=say, args=("wait", lambda: sheaf.wait([made, mine], num_returns=2))
            ),
            threading.Thread(target=say, args=("one of two", lambda: sheaf.wait([made, mine]))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S + WAIT_S)
        assert words["one of two"] == ([mine], [made])
        for name in ("get", "wait"):
            assert f"node {there.node_number}" in words[name] and "stay" in words[name], words
        while stopped:
            os.kill(stopped.pop(), signal.SIGCONT)
        (tmp_path / "go").touch()
        # Who was stopped for so long may be dead to the GCS by the time that both are back: then
        # the call runs again.
        cluster.add_node(num_cpus=1, resources={"b": 1})
        assert sheaf.get(made, timeout=2 * WAIT_S) == 7
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)
        sheaf.shutdown()
        cluster.shutdown()
