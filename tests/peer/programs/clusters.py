# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""cluster_utils.Cluster: several nodes on one machine, their ends, scheduling over them."""

import time

import ray
from program import eventually, main, outcome, program, say
from ray.cluster_utils import Cluster
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import (
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

QUIET = {"include_dashboard": False}
DRIVER = {"log_to_driver": False, "logging_level": "error"}


@ray.remote
def where():
    return ray.get_runtime_context().get_node_id()


@ray.remote
class Where:
    def ping(self):
        return ray.get_runtime_context().get_node_id()


class Nodes:
    """A head and `others`; the driver joins it."""

    def __init__(self, *others, **head):
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, **QUIET, **head}
        )
        self.head = self.cluster.head_node
        self.others = [self.cluster.add_node(**arguments) for arguments in others]
        ray.init(address=self.cluster.address, **DRIVER)
        self.cluster.wait_for_nodes()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        ray.shutdown()
        self.cluster.shutdown()


def alive():
    return sum(node["Alive"] for node in ray.nodes())


@program(alone=True)
def a_head_and_a_node():
    with Nodes({"num_cpus": 2, "resources": {"slot": 1}}) as nodes:
        say(alive(), ray.cluster_resources()["CPU"], ray.cluster_resources()["slot"])
        ids = {node["NodeID"] for node in ray.nodes()}
        say({nodes.head.node_id, nodes.others[0].node_id} == ids)
        say(nodes.cluster.head_node is nodes.head, len(nodes.cluster.worker_nodes))
        say(nodes.cluster.list_all_nodes() == [nodes.head, nodes.others[0]])
        say(ray.get(where.options(resources={"slot": 1}).remote()) == nodes.others[0].node_id)
        say(ray.get_runtime_context().get_node_id() == nodes.head.node_id)
        say(nodes.cluster.remaining_processes_alive())


@program(alone=True)
def nodes_come_and_go():
    with Nodes() as nodes:
        say(alive())
        node = nodes.cluster.add_node(num_cpus=3)
        say(
            eventually(lambda: alive() == 2),
            eventually(lambda: ray.cluster_resources()["CPU"] == 4),
        )
        say(nodes.cluster.remove_node(node))
        say(
            eventually(lambda: alive() == 1),
            eventually(lambda: ray.cluster_resources()["CPU"] == 1),
        )
        say(len(ray.nodes()), len(nodes.cluster.worker_nodes))
        dead = next(row for row in ray.nodes() if not row["Alive"])
        say(dead["NodeID"] == node.node_id, dead["Resources"])


@program(alone=True)
def before_the_driver():
    cluster = Cluster()
    say(cluster.head_node, cluster.address, cluster.list_all_nodes())
    cluster.add_node(num_cpus=1, **QUIET)
    cluster.add_node(num_cpus=1)
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    say(ray.is_initialized())
    context = ray.init(address=cluster.address, **DRIVER)
    say(alive(), context.address_info["address"] == cluster.address)
    ray.shutdown()
    cluster.shutdown()
    say(cluster.head_node, cluster.list_all_nodes())


@program(alone=True)
def connect():
    outcome(Cluster, connect=True, words=["Cannot connect to uninitialized cluster"])
    cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 2, **QUIET})
    say(ray.is_initialized(), cluster.connected, ray.cluster_resources()["CPU"])
    outcome(cluster.connect)
    ray.shutdown()
    cluster.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args=QUIET)
    cluster.connect(namespace="given")
    say(ray.get_runtime_context().namespace, ray.cluster_resources()["CPU"])
    ray.shutdown()
    cluster.shutdown()


@program(alone=True)
def init_of_the_driver():
    with Nodes() as nodes:
        outcome(lambda: ray.init(address=nodes.cluster.address, **DRIVER))
        again = ray.init(address=nodes.cluster.address, ignore_reinit_error=True, **DRIVER)
        say(again.address_info["node_id"] == nodes.head.node_id)
        ray.shutdown()
        for arguments in (
            {"num_cpus": 1},
            {"num_gpus": 1},
            {"resources": {"a": 1}},
            {"labels": {"a": "b"}},
            {"object_store_memory": 100_000_000},
        ):
            outcome(
                lambda a=arguments: ray.init(address=nodes.cluster.address, **a, **DRIVER),
                words=["When connecting to an existing cluster", next(iter(arguments))],
            )
            say(ray.is_initialized())


@program(alone=True)
def auto_finds_the_cluster():
    with Nodes() as nodes:
        ray.shutdown()
        context = ray.init(address="auto", **DRIVER)
        say(context.address_info["address"] == nodes.cluster.address)


@program(alone=True)
def arguments_of_nodes():
    with Nodes(
        {
            "num_cpus": 1,
            "num_gpus": 1,
            "memory": 500 * 1024 * 1024,
            "object_store_memory": 90 * 1024 * 1024,
            "labels": {"zone": "a"},
            "node_name": "second",
            "env_vars": {"PEER_NODE": "1"},
            "object_manager_port": 0,
            "dashboard_agent_listen_port": 0,
        }
    ) as nodes:
        row = next(row for row in ray.nodes() if row["NodeID"] == nodes.others[0].node_id)
        say(row["Resources"]["GPU"], row["Resources"]["memory"], row["Labels"].get("zone"))
        say(row["Resources"]["object_store_memory"], row["NodeName"])

        @ray.remote(num_gpus=1)
        def variable():
            import os

            return os.environ.get("PEER_NODE")

        say(ray.get(variable.remote()))


@program(alone=True)
def wrong_arguments_of_nodes():
    with Nodes() as nodes:
        outcome(nodes.cluster.add_node, nope=1)
        outcome(nodes.cluster.add_node, num_cpu=1)
        outcome(nodes.cluster.add_node, resources={"CPU": 1})
        say(alive())


@program(alone=True)
def waits_for_nodes():
    with Nodes({}) as nodes:
        say(nodes.cluster.wait_for_nodes(timeout=10))
        nodes.others[0].kill_raylet()
        outcome(nodes.cluster.wait_for_nodes, timeout=20) if eventually(
            lambda: alive() == 1
        ) else None


@program(alone=True)
def the_own_node_is_not_removed():
    with Nodes({}) as nodes:
        outcome(
            nodes.cluster.remove_node,
            nodes.head,
            words=["Removing a node that is connected to this Ray client"],
        )
        say(ray.is_initialized())


@program(alone=True)
def affinity():
    with Nodes({"num_cpus": 1}, {"num_cpus": 1}) as nodes:
        for node in [nodes.head, *nodes.others]:
            strategy = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
            say(ray.get(where.options(scheduling_strategy=strategy).remote()) == node.node_id)
            actor = Where.options(scheduling_strategy=strategy).remote()
            say(ray.get(actor.ping.remote()) == node.node_id)
        gone = nodes.others[1].node_id
        nodes.cluster.remove_node(nodes.others[1])
        say(eventually(lambda: alive() == 2))
        hard = NodeAffinitySchedulingStrategy(gone, soft=False)
        outcome(
            ray.get,
            where.options(scheduling_strategy=hard).remote(),
            timeout=20,
            words=["is not schedulable", gone],
        )
        outcome(
            ray.get,
            Where.options(scheduling_strategy=hard).remote().ping.remote(),
            timeout=20,
            words=["is not schedulable"],
        )
        soft = NodeAffinitySchedulingStrategy(gone, soft=True)
        say(ray.get(where.options(scheduling_strategy=soft).remote()) != gone)


@program(alone=True)
def spread():
    with Nodes({"num_cpus": 2}, {"num_cpus": 2}, num_cpus=2):

        @ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
        class Spread:
            def ping(self):
                return ray.get_runtime_context().get_node_id()

        actors = [Spread.remote() for _ in range(3)]
        say(len(set(ray.get([actor.ping.remote() for actor in actors]))))


@program(alone=True)
def labels():
    with Nodes({"labels": {"zone": "a"}}, {"labels": {"zone": "b", "disk": "ssd"}}) as nodes:
        a, b = (node.node_id for node in nodes.others)
        names = {a: "a", b: "b", nodes.head.node_id: "head"}

        def runs(**options):
            return names[ray.get(where.options(**options).remote(), timeout=20)]

        say(runs(label_selector={"zone": "a"}), runs(label_selector={"zone": "b"}))
        say(runs(label_selector={"zone": "!a", "disk": "ssd"}))
        say(runs(label_selector={"zone": "in(b)"}))
        say(runs(scheduling_strategy=NodeLabelSchedulingStrategy({"zone": In("b")})))
        say(runs(label_selector={"ray.io/node-id": a}))
        actor = Where.options(label_selector={"disk": "ssd"}).remote()
        say(names[ray.get(actor.ping.remote())])
        group = placement_group([{"CPU": 1}], bundle_label_selector=[{"zone": "b"}])
        ray.get(group.ready())
        where_it_is = placement_group_table(group)["bundles_to_node_id"]
        say({index: names[node] for index, node in where_it_is.items()})
        remove_placement_group(group)


@program(alone=True)
def groups_over_nodes():
    with Nodes({"num_cpus": 2}, {"num_cpus": 2}, num_cpus=2):
        for strategy, bundles in (
            ("STRICT_PACK", [{"CPU": 1}, {"CPU": 1}]),
            ("PACK", [{"CPU": 1}, {"CPU": 1}]),
            ("STRICT_SPREAD", [{"CPU": 1}] * 3),
            ("SPREAD", [{"CPU": 1}] * 3),
            ("STRICT_SPREAD", [{"CPU": 1}] * 4),
            ("STRICT_PACK", [{"CPU": 2}, {"CPU": 2}]),
            ("PACK", [{"CPU": 2}, {"CPU": 2}]),
        ):
            group = placement_group(bundles, strategy=strategy)
            placed = group.wait(10 if len(bundles) < 4 and bundles[0] != {"CPU": 2} else 1.5)
            nodes = placement_group_table(group)["bundles_to_node_id"].values()
            say(strategy, bundles, placed, len(set(nodes)) if placed else None)
            remove_placement_group(group)
            say(eventually(lambda: ray.available_resources().get("CPU") == 6))


@program(alone=True)
def tasks_of_a_dead_node():
    with Nodes({"resources": {"slot": 1}}) as nodes:

        @ray.remote(resources={"slot": 1}, max_retries=0)
        def waits():
            time.sleep(100)

        ref = waits.remote()
        say(eventually(lambda: "slot" not in ray.available_resources()))
        time.sleep(0.5)
        nodes.cluster.remove_node(nodes.others[0], allow_graceful=False)
        outcome(ray.get, ref, timeout=40)


@program(alone=True)
def actors_of_a_dead_node():
    with Nodes({"resources": {"slot": 1}}) as nodes:
        fixed = Where.options(resources={"slot": 1}).remote()
        say(ray.get(fixed.ping.remote()) == nodes.others[0].node_id)
        nodes.cluster.remove_node(nodes.others[0], allow_graceful=False)

        def ping():
            return ray.get(fixed.ping.remote(), timeout=40)

        def dead():
            try:
                ping()
            except ray.exceptions.ActorDiedError:
                return True
            except ray.exceptions.RayError:
                return False
            return False

        say(eventually(dead, 40))
        outcome(ping, words=["The actor is dead because", "its node has died", "Node"])


@program(alone=True)
def actors_move_to_another_node():
    with Nodes({"resources": {"slot": 1}}) as nodes:
        actor = Where.options(resources={"slot": 1}, max_restarts=1, max_task_retries=-1).remote()
        first = ray.get(actor.ping.remote())
        say(first == nodes.others[0].node_id)
        nodes.cluster.remove_node(nodes.others[0], allow_graceful=False)
        second = nodes.cluster.add_node(resources={"slot": 1})
        say(ray.get(actor.ping.remote(), timeout=40) == second.node_id)


@program(alone=True)
def objects_of_a_dead_node():
    with Nodes({"resources": {"slot": 1}}) as nodes:

        @ray.remote(resources={"slot": 1}, max_retries=0)
        def large():
            return b"x" * 5_000_000

        ref = large.remote()
        ray.wait([ref], fetch_local=False)
        nodes.cluster.remove_node(nodes.others[0], allow_graceful=False)
        say(eventually(lambda: alive() == 1, 30))
        outcome(ray.get, ref, timeout=40)


@program(alone=True)
def objects_are_made_again():
    with Nodes({"resources": {"slot": 1}}) as nodes:

        @ray.remote(resources={"slot": 1})
        def large():
            return b"x" * 5_000_000

        ref = large.remote()
        ray.wait([ref], fetch_local=False)
        nodes.cluster.remove_node(nodes.others[0], allow_graceful=False)
        nodes.cluster.add_node(resources={"slot": 1})
        say(len(ray.get(ref, timeout=50)))


@program(alone=True)
def infeasible_until_a_node_comes():
    with Nodes() as nodes:
        ref = where.options(resources={"slot": 1}).remote()
        group = placement_group([{"CPU": 2}])
        say(len(ray.wait([ref], timeout=0.3)[0]), group.wait(0.2))
        node = nodes.cluster.add_node(num_cpus=3, resources={"slot": 1})
        say(ray.get(ref, timeout=30) == node.node_id, group.wait(30))
        inside = where.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group))
        say(ray.get(inside.remote(), timeout=20) == node.node_id)


if __name__ == "__main__":
    main()
