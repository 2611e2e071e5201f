# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""./do python tests/peer/ray_clients.py: Ray's own clients, which know nothing of Sheaf, ask the
dashboard of a Sheaf head. Needs `./do peer --live` to have made Ray's environment, or SHEAF_PEERS.

It fails when a client does not understand an answer: Ray checks the types of all columns. Ray asks
for logs over another protocol, whatever address it is given.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import sheaf
from sheaf.cluster_utils import _program

PEERS = pathlib.Path(os.environ.get("SHEAF_PEERS", "build/peers"))
RAY = PEERS / "ray" / "bin"

CLIENT = """
import json, sys
from ray.util import state
from ray.util.state import StateApiClient

url, pid = sys.argv[1], int(sys.argv[2])
lists = [state.list_actors, state.list_nodes, state.list_tasks, state.list_objects,
         state.list_workers, state.list_jobs, state.list_placement_groups]
out = {one.__name__: len(one(address=url, detail=True, limit=1000)) for one in lists}
(actor,) = [row for row in state.list_actors(address=url, filters=[("state", "=", "alive")])
            if row.pid == pid]
out["get"] = state.get_actor(actor.actor_id, address=url).name
out["node"] = state.get_node(actor.node_id, address=url).is_head_node
out["tasks"] = state.summarize_tasks(address=url)["cluster"]["summary_by"]
out["actors"] = state.summarize_actors(address=url)["cluster"]["total_actors"]
out["objects"] = state.summarize_objects(address=url)["cluster"]["total_objects"]
out["version"] = StateApiClient(address=url).get_version()
print(json.dumps(out))
"""


@sheaf.remote(num_cpus=0)
class Speaker:
    def say(self, text):
        print(text, flush=True)
        return os.getpid()


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, **options)
    if done.returncode != 0:
        sys.exit(f"{command}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main():
    if not (RAY / "python").exists():
        sys.exit(f"there is no Ray in {RAY.parent}")
    with tempfile.TemporaryDirectory() as directory:
        said = json.loads(
            run(
                *(_program(), "start", "--json", "--head", f"--dir={directory}", "--port=0"),
                "--dashboard-port=0",
                env={**os.environ, "SHEAF_STATE_IN_MEMORY": "1"},
            )
        )
        try:
            ask(said["session"], said["dashboard_url"])
        finally:
            run(_program(), "stop", "--address", said["session"])


def ask(session, url):
    with sheaf.init(address=session):
        speaker = Speaker.options(name="Annie").remote()
        pid = sheaf.get(speaker.say.remote("hello there"))
        kept = sheaf.put(b"x" * 100_000)
        waits = sheaf.remote(num_gpus=7)(print).remote()  # For ever.
        group = sheaf.util.placement_group([{"CPU": 0.1}], name="group")
        sheaf.get(group.ready())
        told = json.loads(run(RAY / "python", "-c", CLIENT, url, str(pid)).splitlines()[-1])
        print(json.dumps(told, indent=2))
        assert told["get"] == "Annie"
        assert told["node"] is True
        assert told["actors"] >= 1
        assert told["objects"] >= 1
        assert told["list_tasks"] >= 1
        assert told["list_placement_groups"] == 1
        for command in ("list actors", "list nodes", "list tasks", "list workers", "list jobs"):
            text = run(RAY / "ray", *command.split(), "--address", url)
            print(f"ray {command}: {len(text.splitlines())} lines")
            assert "Total:" in text, text
        del kept, waits


if __name__ == "__main__":
    main()
