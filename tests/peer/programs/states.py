# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""ray.util.state: listings, filters, summaries. Ray answers them by its dashboard, which these
programs start."""

import json
import os
import tempfile

import ray
from program import eventually, main, outcome, program, say
from ray.util import state


def start(**arguments):
    return ray.init(
        **{"num_cpus": 2, "log_to_driver": False, "logging_level": "error", **arguments}
    )


@ray.remote
class Named:
    def ping(self):
        return "pong"

    def pid(self):
        return os.getpid()


def field(row, name):
    return row[name] if isinstance(row, dict) else getattr(row, name)


@program(alone=True)
def actors():
    start(namespace="states")
    one = Named.options(name="one").remote()
    two = Named.remote()
    ray.get([one.ping.remote(), two.ping.remote()])
    say(eventually(lambda: len(state.list_actors(filters=[("state", "=", "ALIVE")])) == 2))
    rows = state.list_actors(filters=[("name", "=", "one")])
    (row,) = rows
    say(row.class_name, row.state, row.name, row.ray_namespace)
    say(row.actor_id == one._actor_id.hex(), row.pid == ray.get(one.pid.remote()))
    say(row.job_id == ray.get_runtime_context().get_job_id())
    say(row.node_id == ray.get_runtime_context().get_node_id())
    say(row["state"], "actor_id" in row, type(row.death_cause).__name__)
    same = state.get_actor(id=one._actor_id.hex())
    say(same.name, same.state, state.get_actor("ab" * 16))
    ray.kill(two)
    say(eventually(lambda: state.get_actor(two._actor_id.hex()).state == "DEAD"))
    say(len(state.list_actors()), len(state.list_actors(limit=1)))
    say(len(state.list_actors(filters=[("state", "!=", "DEAD")])))


@program(alone=True)
def fields_of_actors():
    start()
    actor = Named.options(name="fields", lifetime="detached").remote()
    ray.get(actor.ping.remote())
    (row,) = state.list_actors()
    say(sorted(vars(row) if not isinstance(row, dict) else row))
    (row,) = state.list_actors(detail=True)
    say(row.is_detached, row.num_restarts, row.required_resources)
    say(sorted(vars(row) if not isinstance(row, dict) else row))


@program(alone=True)
def filters():
    start()
    ray.get(Named.options(name="a").remote().ping.remote())
    for filters in (
        [("name", "=", "a")],
        [("name", "!=", "a")],
        [("name", "=", "A")],
        [("state", "=", "alive")],
        [("name", "=", "a"), ("state", "=", "ALIVE")],
        [("pid", "=", "x")],
        [("nope", "=", "a")],
        [("name", ">", "a")],
        [("name", "~", "a")],
        [("name",)],
        ["name=a"],
        "name=a",
        [],
        [["name", "=", "a"]],
    ):
        say(filters)
        outcome(lambda f=filters: len(state.list_actors(filters=f)))


@program(alone=True)
def limits():
    start()
    for limit in (1, 0, -1, 10_001, "1", None):
        say(limit)
        outcome(lambda v=limit: type(state.list_actors(limit=v)).__name__)
    outcome(state.list_actors, timeout=10)
    outcome(state.list_actors, nope=1)


@program(alone=True)
def tasks():
    start()

    @ray.remote
    def works():
        return 1

    @ray.remote(max_retries=0)
    def fails():
        raise ValueError("fails")

    ray.get(works.remote())
    ray.wait([fails.remote()])

    def all_there():
        rows = state.list_tasks()
        return {row.state for row in rows} == {"FINISHED", "FAILED"}

    say(eventually(all_there))
    (row,) = state.list_tasks(filters=[("state", "=", "FINISHED")])
    say(row.name.split(".")[-1], row.type, row.attempt_number)
    (row,) = state.list_tasks(filters=[("state", "=", "FAILED")], detail=True)
    say(row.name.split(".")[-1], row.error_type, "fails" in str(row.error_message))


@program(alone=True)
def a_running_task():
    start()

    @ray.remote
    def waits():
        import time

        time.sleep(100)

    ref = waits.options(name="waits").remote()
    say(eventually(lambda: len(state.list_tasks(filters=[("state", "=", "RUNNING")])) == 1))
    (row,) = state.list_tasks(filters=[("name", "=", "waits")])
    say(row.state, row.func_or_class_name.split(".")[-1], row.type)
    say(row.task_id == ref.task_id().hex())
    say(row.job_id == ray.get_runtime_context().get_job_id())
    found = state.get_task(ref.task_id().hex())
    say(found.name if not isinstance(found, list) else [r.name for r in found])
    pending = waits.options(num_cpus=2, name="pending").remote()
    say(eventually(lambda: len(state.list_tasks(filters=[("name", "=", "pending")])) == 1))
    (row,) = state.list_tasks(filters=[("name", "=", "pending")])
    say(row.state.split("_")[0])
    summary = state.summarize_tasks()
    say(sorted(summary), summary["cluster"]["summary_by"])
    ray.cancel(ref, force=True)
    ray.cancel(pending)


@program(alone=True)
def nodes():
    start(labels={"zone": "a"})
    (row,) = state.list_nodes()
    say(row.node_id == ray.get_runtime_context().get_node_id(), row.state, row.is_head_node)
    say(row.resources_total["CPU"], row.labels.get("zone"))
    say(sorted(vars(row) if not isinstance(row, dict) else row))
    say(state.get_node(row.node_id).state, state.get_node("ab" * 28))
    say(len(state.list_nodes(filters=[("state", "=", "DEAD")])))


@program(alone=True)
def placement_groups():
    start()
    group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}], name="listed")
    ray.get(group.ready())
    (row,) = state.list_placement_groups(detail=True)
    say(row.placement_group_id == group.id.hex(), row.name, row.state)
    say([sorted(bundle) for bundle in row.bundles], row.is_detached)
    found = state.get_placement_group(group.id.hex())
    say(found.name, state.get_placement_group("ab" * 18))
    ray.util.remove_placement_group(group)
    say(eventually(lambda: state.get_placement_group(group.id.hex()).state == "REMOVED"))


@program(alone=True)
def objects():
    start()
    ref = ray.put(b"x" * 1_000_000)
    say(eventually(lambda: len(state.get_objects(ref.hex())) == 1))
    (row,) = state.get_objects(ref.hex())
    say(row.object_id == ref.hex(), row.object_size >= 1_000_000, row.task_status)
    say(row.reference_type, row.type, row.pid == os.getpid())
    say(state.get_objects("ab" * 28))
    summary = state.summarize_objects()
    say(sorted(summary), summary["cluster"]["total_objects"])


@program(alone=True)
def workers_and_jobs():
    start()
    actor = Named.remote()
    pid = ray.get(actor.pid.remote())
    say(eventually(lambda: any(w.pid == pid for w in state.list_workers())))
    row = next(w for w in state.list_workers() if w.pid == pid)
    say(row.worker_type, row.is_alive, row.node_id == ray.get_runtime_context().get_node_id())
    same = state.get_worker(row.worker_id)
    say(same.pid == pid, state.get_worker("ab" * 28))
    (job,) = [j for j in state.list_jobs() if j.type == "DRIVER"]
    say(job.job_id == ray.get_runtime_context().get_job_id(), job.status)
    say(sorted({w.worker_type for w in state.list_workers(limit=100)} & {"WORKER", "DRIVER"}))


@program(alone=True)
def summaries():
    start()
    actors = [Named.remote() for _ in range(2)]
    ray.get([a.ping.remote() for a in actors])
    say(
        eventually(
            lambda: (
                state.summarize_actors()["cluster"]["summary"]
                .get("Named", {})
                .get("state_counts", {})
                .get("ALIVE")
                == 2
            )
        )
    )
    summary = state.summarize_actors()
    say(sorted(summary["cluster"]), summary["cluster"]["total_actors"])
    say(summary["cluster"]["summary_by"])
    say(eventually(lambda: "cluster" in state.summarize_tasks()))


@program(alone=True)
def logs():
    start()

    @ray.remote
    class Prints:
        def print(self):
            print("a line of the actor", flush=True)

    actor = Prints.remote()
    ray.get(actor.print.remote())
    id = actor._actor_id.hex()
    say(eventually(lambda: "a line of the actor" in "".join(state.get_log(actor_id=id))))
    say(type(state.list_logs(node_id=ray.get_runtime_context().get_node_id())).__name__)


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
