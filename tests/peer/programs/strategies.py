# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Scheduling strategies, label selectors and node resources, on one node."""

import ray
from program import main, outcome, program, say
from ray.util.scheduling_strategies import (
    DoesNotExist,
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)


@ray.remote
def where():
    return ray.get_runtime_context().get_node_id()


@ray.remote
class Where:
    def ping(self):
        return ray.get_runtime_context().get_node_id()


NOWHERE = "ab" * 28


@program
def strategies_by_name():
    here = ray.get_runtime_context().get_node_id()
    for strategy in ("DEFAULT", "SPREAD", None):
        say(ray.get(where.options(scheduling_strategy=strategy).remote()) == here)
        actor = Where.options(scheduling_strategy=strategy).remote()
        say(ray.get(actor.ping.remote()) == here)
        ray.kill(actor)


@program
def wrong_strategies():
    for strategy in ("default", "", 1, object, ["SPREAD"], {"SPREAD": 1}):
        outcome(lambda s=strategy: type(where.options(scheduling_strategy=s)).__name__)
        outcome(lambda s=strategy: type(Where.options(scheduling_strategy=s)).__name__)
    outcome(
        lambda: ray.remote(scheduling_strategy="NOPE")(print), words=["scheduling_strategy", "NOPE"]
    )


@program
def affinity():
    here = ray.get_runtime_context().get_node_id()
    hard = NodeAffinitySchedulingStrategy(here, soft=False)
    say(hard.node_id == here, hard.soft)
    say(ray.get(where.options(scheduling_strategy=hard).remote()) == here)
    actor = Where.options(scheduling_strategy=hard).remote()
    say(ray.get(actor.ping.remote()) == here)
    ray.kill(actor)
    by_object = NodeAffinitySchedulingStrategy(ray.NodeID.from_hex(here), soft=True)
    say(by_object.node_id == here)
    say(ray.get(where.options(scheduling_strategy=by_object).remote()) == here)


@program
def affinity_to_no_node():
    hard = NodeAffinitySchedulingStrategy(NOWHERE, soft=False)
    outcome(
        ray.get,
        where.options(scheduling_strategy=hard).remote(),
        timeout=20,
        words=[NOWHERE, "is not schedulable", "node affinity"],
    )
    actor = Where.options(scheduling_strategy=hard).remote()
    outcome(ray.get, actor.ping.remote(), timeout=20, words=["is not schedulable"])
    soft = NodeAffinitySchedulingStrategy(NOWHERE, soft=True)
    here = ray.get_runtime_context().get_node_id()
    say(ray.get(where.options(scheduling_strategy=soft).remote(), timeout=20) == here)


@program
def affinity_to_a_small_node():
    here = ray.get_runtime_context().get_node_id()
    hard = NodeAffinitySchedulingStrategy(here, soft=False)
    ref = where.options(scheduling_strategy=hard, num_cpus=100).remote()
    outcome(ray.get, ref, timeout=10, words=["is not schedulable"])


@program
def wrong_affinity():
    here = ray.get_runtime_context().get_node_id()
    for node in ("", "nope", "ff" * 28, "00" * 28, here[:-2], None, 5):
        outcome(
            lambda n=node: NodeAffinitySchedulingStrategy(n, soft=False).soft,
            words=["Invalid node_id", "ray.nodes()"],
        )
    outcome(lambda: NodeAffinitySchedulingStrategy(here).soft)
    outcome(
        lambda: NodeAffinitySchedulingStrategy(here, soft=False, _spill_on_unavailable=True).soft
    )
    outcome(lambda: NodeAffinitySchedulingStrategy(here, soft=True, _fail_on_unavailable=True).soft)


@program
def label_strategies():
    here = ray.get_runtime_context().get_node_id()
    by_id = NodeLabelSchedulingStrategy({"ray.io/node-id": In(here)})
    say(ray.get(where.options(scheduling_strategy=by_id).remote(), timeout=10) == here)
    absent = NodeLabelSchedulingStrategy({"zone": DoesNotExist()})
    say(ray.get(where.options(scheduling_strategy=absent).remote(), timeout=10) == here)
    exists = NodeLabelSchedulingStrategy({"ray.io/node-id": Exists()})
    say(ray.get(where.options(scheduling_strategy=exists).remote(), timeout=10) == here)
    other = NodeLabelSchedulingStrategy({"ray.io/node-id": NotIn(NOWHERE)})
    say(ray.get(where.options(scheduling_strategy=other).remote(), timeout=10) == here)
    soft = NodeLabelSchedulingStrategy(hard={}, soft={"zone": In("b")})
    say(ray.get(where.options(scheduling_strategy=soft).remote(), timeout=10) == here)


@program
def label_strategies_that_fit_nowhere():
    nowhere = NodeLabelSchedulingStrategy({"zone": In("a", "b")})
    ref = where.options(scheduling_strategy=nowhere).remote()
    outcome(ray.get, ref, timeout=2)
    ray.cancel(ref)
    actor = Where.options(scheduling_strategy=nowhere).remote()
    outcome(ray.get, actor.ping.remote(), timeout=2)
    ray.kill(actor)


@program
def wrong_label_strategies():
    outcome(lambda: NodeLabelSchedulingStrategy({}).hard, words=["cannot both be empty"])
    outcome(lambda: NodeLabelSchedulingStrategy(None).hard)
    outcome(lambda: NodeLabelSchedulingStrategy().hard)
    outcome(lambda: NodeLabelSchedulingStrategy({1: Exists()}).hard)
    outcome(lambda: NodeLabelSchedulingStrategy({"a": "b"}).hard)
    outcome(lambda: NodeLabelSchedulingStrategy(["a"]).hard)
    outcome(lambda: NodeLabelSchedulingStrategy({"a": Exists()}, {"b": Exists()}).hard)
    for kind in (In, NotIn):
        outcome(lambda k=kind: k().values, words=["must be a non-empty tuple"])
        outcome(lambda k=kind: k(1).values, words=["must be str"])
        outcome(lambda k=kind: k("a", "b").values)
    outcome(lambda: Exists("a").values)


@program
def labels_of_a_node():
    labels = ray.get_runtime_context().get_node_labels()
    here = ray.get_runtime_context().get_node_id()
    say(labels.get("ray.io/node-id") == here)
    say(ray.nodes()[0]["Labels"] == labels)

    @ray.remote
    def labels_there():
        return ray.get_runtime_context().get_node_labels()

    say(ray.get(labels_there.remote()) == labels)


@program(alone=True)
def label_selectors():
    labels = {"zone": "a", "disk": "ssd"}
    ray.init(num_cpus=2, labels=labels, include_dashboard=False, log_to_driver=False)
    found = ray.get_runtime_context().get_node_labels()
    say({name: found.get(name) for name in labels})
    for selector in (
        {"zone": "a"},
        {"zone": "in(a,b)"},
        {"zone": "in(a, b)"},
        {"zone": "!b"},
        {"zone": "!in(b,c)"},
        {"zone": "a", "disk": "ssd"},
        {"zone": "b"},
        {"zone": "a", "disk": "hdd"},
        {"nothing": "!x"},
        {"nothing": "x"},
    ):
        ref = where.options(label_selector=selector).remote()
        say(selector, len(ray.wait([ref], timeout=1 if "b" in str(selector) else 3)[0]))
        ray.cancel(ref)


@program(alone=True)
def fallback_strategies():
    ray.init(num_cpus=2, labels={"zone": "a"}, include_dashboard=False, log_to_driver=False)
    fallback = [{"label_selector": {"zone": "c"}}, {"label_selector": {"zone": "a"}}]
    ref = where.options(label_selector={"zone": "b"}, fallback_strategy=fallback).remote()
    say(len(ray.wait([ref], timeout=10)[0]))
    actor = Where.options(label_selector={"zone": "b"}, fallback_strategy=fallback).remote()
    say(len(ray.wait([actor.ping.remote()], timeout=10)[0]))


@program
def wrong_label_selectors():
    for selector in (
        {"zone": 1},
        {1: "a"},
        "zone",
        ["zone"],
        {"zone": ""},
        {"zone": "!"},
        {"zone": "in()"},
        {"zone": "in(a"},
        {"zone": "!in()"},
        {"zone": "a b"},
        {"zo ne": "a"},
        {"": "a"},
        {"zone": "-a"},
        {"zone": "a-" * 40},
        {"prefix.io/zone": "a"},
        {"/zone": "a"},
        {"zone": None},
        {"zone": ["a"]},
    ):
        say(selector)
        outcome(lambda s=selector: type(where.options(label_selector=s)).__name__)


@program
def wrong_fallback_strategies():
    for fallback in (
        "zone",
        {"label_selector": {"zone": "a"}},
        [{"zone": "a"}],
        [{"label_selector": {"zone": 1}}],
        [{"label_selector": {"zone": "a"}, "num_cpus": 1}],
        [{}],
        ["zone"],
        [],
    ):
        say(fallback)
        outcome(lambda f=fallback: type(where.options(fallback_strategy=f)).__name__)


@program
def node_resources():
    total = ray.cluster_resources()
    say(sorted(name.split(":")[0] for name in total))
    name = next(n for n in total if n.startswith("node:") and "internal" not in n)
    say(total[name], total["node:__internal_head__"])
    here = ray.get_runtime_context().get_node_id()
    say(ray.get(where.options(resources={name: 0.01}).remote()) == here)
    say(ray.get(where.options(resources={"node:__internal_head__": 0.001}).remote()) == here)
    actor = Where.options(resources={name: 0.01}).remote()
    say(ray.get(actor.ping.remote()) == here)
    ray.kill(actor)
    ref = where.options(resources={"node:192.0.2.77": 0.01}).remote()
    say(len(ray.wait([ref], timeout=0.5)[0]))
    ray.cancel(ref)


@program(alone=True)
def wrong_labels_of_init():
    for labels in (
        {"zone": 1},
        {1: "a"},
        "zone=a",
        {"ray.io/node-id": "x"},
        {"zone": "a b"},
        {"zo ne": "a"},
        {"zone": "-a"},
        {"zone": ""},
    ):
        say(labels)
        outcome(
            lambda v=labels: (
                type(
                    ray.init(num_cpus=1, labels=v, include_dashboard=False, log_to_driver=False)
                ).__name__
            )
        )
        ray.shutdown()


if __name__ == "__main__":
    main()
