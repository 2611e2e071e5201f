# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a session tells about itself without Ray's dashboard: the timeline and amounts."""

import json
import os
import tempfile

import ray
from program import eventually, main, program, say


@program
def a_timeline():
    @ray.remote
    def traced():
        return 1

    ray.get([traced.remote() for _ in range(3)])
    say(eventually(lambda: any("traced" in e["name"] for e in ray.timeline())))
    events = [e for e in ray.timeline() if "traced" in e["name"]]
    say(
        {type(e).__name__ for e in events},
        {"name", "cat", "ph", "ts", "pid", "tid"} <= set(events[0]),
    )
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        say(ray.timeline(path) is None, ray.timeline(filename=path))
        with open(path) as file:
            say(type(json.load(file)).__name__)


@program
def amounts_of_the_cluster():
    total, free = ray.cluster_resources(), ray.available_resources()
    say(total["CPU"], type(total["memory"]).__name__, type(total["object_store_memory"]).__name__)
    say(set(free) <= set(total), type(free).__name__)
    say(sorted(n for n in total if "node" not in n))


if __name__ == "__main__":
    main()
