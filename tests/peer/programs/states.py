# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a session tells about itself: the timeline, amounts, and listings of its state."""

import json
import os
import tempfile
import time

import ray
from program import eventually, main, outcome, program, say


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


def _started():
    """A session whose states can be asked for: Ray's API for that speaks to its dashboard."""
    ray.init(num_cpus=4, log_to_driver=False, logging_level="error", include_dashboard=True)
    from ray.util import state

    eventually(lambda: _asked(state.list_nodes) is not None)
    return state


def _asked(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Exception:
        return None


@ray.remote(num_cpus=0)
class Actor:
    def one(self):
        return 1

    def sleep(self):
        time.sleep(30)


@program(alone=True)
def actors_as_listed():
    state = _started()
    kept = Actor.options(name="kept").remote()
    other = Actor.remote()
    ray.get([kept.one.remote(), other.one.remote()])
    rows = state.list_actors()
    say(len(rows), {type(r.actor_id).__name__ for r in rows}, {r.state for r in rows})
    say({r.class_name for r in rows}, sorted(r.name for r in rows))
    say({r["class_name"] for r in rows}, {r.job_id == rows[0].job_id for r in rows})
    say(all(isinstance(r.pid, int) for r in rows), {len(r.node_id) for r in rows})
    found = state.list_actors(filters=[("name", "=", "kept")])
    say([r.name for r in found])
    say(len(state.list_actors(filters=[("state", "=", "ALIVE"), ("class_name", "=", "Actor")])))
    say(len(state.list_actors(filters=[("state", "!=", "ALIVE")])))
    say(state.get_actor(found[0].actor_id).name, state.get_actor("0" * 32))
    ray.kill(kept)
    say(eventually(lambda: len(state.list_actors(filters=[("state", "=", "DEAD")])) == 1))


@program(alone=True)
def wrong_filters():
    state = _started()
    Actor.remote()
    outcome(state.list_actors, filters=[("state", ">", "ALIVE")])
    outcome(state.list_actors, filters=[("nowhere", "=", "ALIVE")])
    outcome(state.list_actors, filters="state=ALIVE")
    outcome(state.list_actors, limit=-1)
    outcome(state.get_actor, None)


@program(alone=True)
def limits_of_listings():
    state = _started()
    actors = [Actor.remote() for _ in range(3)]
    ray.get([a.one.remote() for a in actors])
    say(len(state.list_actors(limit=2)))
    say(len(state.list_actors(limit=100)))
    say(len(state.list_actors(limit=2, raise_on_missing_output=False)))


@program(alone=True)
def running_tasks_as_listed():
    state = _started()

    @ray.remote
    def sleeps():
        time.sleep(30)

    refs = [sleeps.options(name=f"given {i}").remote() for i in range(2)]

    def running():
        return state.list_tasks(filters=[("state", "=", "RUNNING")])

    say(eventually(lambda: len(running()) == 2))
    rows = running()
    say(sorted(r.name for r in rows), {r.type for r in rows}, {r.actor_id for r in rows})
    say({r.attempt_number for r in rows}, {r.state for r in rows})
    say(sorted(r.task_id for r in rows) == sorted(ref.task_id().hex() for ref in refs))
    say({r.job_id == ray.get_runtime_context().get_job_id() for r in rows})
    say(state.get_task(rows[0].task_id).name == rows[0].name)


@program(alone=True)
def calls_of_actors_as_listed():
    state = _started()
    actor = Actor.remote()
    refs = [actor.sleep.remote()]

    def running():
        return state.list_tasks(filters=[("state", "=", "RUNNING")])

    # Its constructor may be seen running, too.
    say(eventually(lambda: [row.type for row in running()] == ["ACTOR_TASK"]))
    row = running()[0]
    say(row.name, row.type, row.actor_id == state.list_actors()[0].actor_id, len(refs))


@program(alone=True)
def tasks_that_wait_as_listed():
    state = _started()

    @ray.remote(resources={"nowhere": 1})
    def waits():
        pass

    @ray.remote
    def takes(x):
        pass

    first = waits.remote()
    second = takes.remote(first)

    def rows():
        return {r.name: r.state for r in state.list_tasks()}

    say(eventually(lambda: len(rows()) == 2))
    say(eventually(lambda: rows()["waits"] == "PENDING_NODE_ASSIGNMENT"), sorted(rows()))
    say(eventually(lambda: rows()["takes"] == "PENDING_ARGS_AVAIL"), second is not None)


@program(alone=True)
def nodes_as_listed():
    state = _started()
    rows = state.list_nodes()
    say(len(rows), rows[0].state, rows[0].is_head_node, rows[0].resources_total["CPU"])
    say(rows[0].node_id == ray.get_runtime_context().get_node_id())
    say(state.get_node(rows[0].node_id).node_id == rows[0].node_id)


@program(alone=True)
def groups_as_listed():
    from ray.util.placement_group import placement_group

    state = _started()
    group = placement_group([{"CPU": 1}, {"CPU": 1}], name="the group")
    ray.get(group.ready())
    rows = state.list_placement_groups()
    say(
        [r.name for r in rows],
        [r.state for r in rows],
        rows[0].placement_group_id == group.id.hex(),
    )
    say(state.get_placement_group(group.id.hex()).name)
    waits = placement_group([{"CPU": 100}])
    say(eventually(lambda: len(state.list_placement_groups()) == 2), waits is not None)
    say(sorted(r.state for r in state.list_placement_groups()))


@program(alone=True)
def objects_as_listed():
    state = _started()
    ref = ray.put(b"x" * 1_000_000)
    say(eventually(lambda: ref.hex() in {r.object_id for r in state.list_objects()}))
    row = [r for r in state.list_objects() if r.object_id == ref.hex()][0]
    say(1_000_000 <= row.object_size < 1_010_000, row.task_status in ("NIL", "FINISHED", "-"))


@program(alone=True)
def summaries():
    state = _started()
    actors = [Actor.remote() for _ in range(2)]
    ray.get([a.one.remote() for a in actors])
    summary = state.summarize_actors()
    say(type(summary).__name__, sorted(summary))
    cluster = summary["cluster"]
    say(sorted(cluster), cluster["total_actors"], cluster["summary"]["Actor"]["state_counts"])
    say(sorted(state.summarize_tasks()["cluster"]))
    say(sorted(state.summarize_objects()["cluster"]))


@program(alone=True)
def jobs_as_listed():
    state = _started()
    rows = state.list_jobs()
    say(len(rows), rows[0].type, rows[0].status, rows[0].driver_info is not None)
    say(rows[0].job_id == ray.get_runtime_context().get_job_id())


@program(alone=True)
def workers_as_listed():
    state = _started()

    @ray.remote
    def pid():
        return os.getpid()

    mine = ray.get(pid.remote())
    rows = state.list_workers()
    say(mine in {r.pid for r in rows}, {type(r.worker_id).__name__ for r in rows})
    say("WORKER" in {r.worker_type for r in rows})


if __name__ == "__main__":
    main()
