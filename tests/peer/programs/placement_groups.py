# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Placement groups: creation, validation, tables, names, removal."""

import pickle

import ray
from program import eventually, kinds, main, outcome, program, say, took
from ray.util import (
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.placement_group import PlacementGroup


def state_of(group):
    return placement_group_table(group)["state"]


def creates(*args, words=(), **kwargs):
    """Says whether the arguments are taken; the group goes."""

    def create():
        group = placement_group(*args, **kwargs)
        remove_placement_group(group)
        return type(group).__name__

    outcome(create, words=words)


@program
def created_and_ready():
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    say(group.wait(10), group.wait(timeout_seconds=1))
    same = ray.get(group.ready())
    say(type(same).__name__, same == group, same is group, hash(same) == hash(group))
    say(type(group.ready()).__name__)
    say(group.bundle_count, group.bundle_specs)
    say(type(group.id).__name__, type(group.id.hex()).__name__, group.is_empty)
    ready, left = ray.wait([group.ready()], timeout=10)
    say(len(ready), len(left))
    remove_placement_group(group)


@program
def amounts_are_floats():
    group = placement_group([{"CPU": 0.5}, {"CPU": 1, "memory": 1024}])
    say(group.bundle_specs)
    ray.get(group.ready())
    bundles = placement_group_table(group)["bundles"]
    say({index: sorted(bundle.items()) for index, bundle in bundles.items()})
    remove_placement_group(group)


@program
def wrong_bundles():
    for bundles in (
        [],
        {"CPU": 1},
        ({"CPU": 1},),
        [{}],
        [{"CPU": 0}],
        [{"CPU": 1}, {}],
        [{"CPU": "1"}],
        [{1: 1}],
        ["CPU"],
        [None],
        None,
        "CPU",
    ):
        say(bundles)
        creates(bundles)


@program
def wrong_bundles_say_why():
    creates([], words=["non-empty list of resource"])
    creates({"CPU": 1}, words=["must be a list"])
    creates([{}], words=["cannot be an empty dictionary"])
    creates([{"CPU": 0, "GPU": 0}], words=["resources with only 0 values"])
    creates([{"CPU": "1"}], words=["Bundles must be a non-empty list of"])


@program
def negative_amounts():
    creates([{"CPU": -1}])
    creates([{"CPU": 1, "slot": -1}])


@program
def wrong_strategy_and_lifetime():
    creates(
        [{"CPU": 1}],
        strategy="pack",
        words=["Invalid placement group strategy pack", "Supported strategies are"],
    )
    creates([{"CPU": 1}], strategy=1)
    creates(
        [{"CPU": 1}],
        lifetime="forever",
        words=["`lifetime` argument must be either `None` or 'detached'"],
    )
    creates([{"CPU": 1}], _soft_target_node_id="00" * 28)
    creates([{"CPU": 1}], strategy="STRICT_PACK", _soft_target_node_id="ff" * 28)
    creates([{"CPU": 1}], nope=1)
    creates()


@program
def wrong_label_selectors():
    bundles = [{"CPU": 1}]
    for selectors in (
        [{"zone": "a"}, {"zone": "b"}],
        {"zone": "a"},
        [{"zone": 1}],
        [{1: "a"}],
        ["zone"],
        [{"zone": "in()"}],
        [{"zone": "!"}],
        [{"zo ne": "a"}],
        [{"zone": "a b"}],
    ):
        say(selectors)
        creates(bundles, bundle_label_selector=selectors)


@program
def strategies_on_one_node():
    for strategy in ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"):
        group = placement_group([{"CPU": 1}, {"CPU": 1}], strategy=strategy)
        say(strategy, group.wait(0.3 if strategy == "STRICT_SPREAD" else 20))
        say(state_of(group), placement_group_table(group)["strategy"])
        remove_placement_group(group)


@program
def a_table_has_these_fields():
    group = placement_group([{"CPU": 1}, {"CPU": 2}], name="table")
    ray.get(group.ready())
    table = placement_group_table(group)
    say(sorted(table))
    say(table["placement_group_id"] == group.id.hex(), table["name"], table["strategy"])
    say(table["state"], table["bundles"])
    here = ray.get_runtime_context().get_node_id()
    say({k: v == here for k, v in table["bundles_to_node_id"].items()})
    say(sorted(table["stats"]))
    say(table["stats"]["scheduling_state"])
    say({k: type(v).__name__ for k, v in sorted(table["stats"].items())})
    remove_placement_group(group)


@program
def a_table_of_what_waits():
    group = placement_group([{"CPU": 100}])
    say(group.wait(0.3))
    table = placement_group_table(group)
    say(table["state"], table["bundles"], table["bundles_to_node_id"])
    say(table["stats"]["scheduling_state"])
    remove_placement_group(group)


@program
def the_table_of_all():
    group = placement_group([{"CPU": 1}])
    ray.get(group.ready())
    tables = placement_group_table()
    say(type(tables).__name__, group.id.hex() in tables)
    say(tables[group.id.hex()] == placement_group_table(group))
    remove_placement_group(group)
    say(eventually(lambda: placement_group_table()[group.id.hex()]["state"] == "REMOVED", 5))


@program
def the_table_of_an_unknown_group():
    outcome(placement_group_table, PlacementGroup.empty())
    outcome(placement_group_table, "group")


@program
def removed_groups():
    group = placement_group([{"CPU": 1}, {"CPU": 2}], name="removed")
    ray.get(group.ready())
    say(remove_placement_group(group))
    say(eventually(lambda: state_of(group) == "REMOVED"))
    say(eventually(lambda: ray.available_resources().get("CPU") == 4))
    say(remove_placement_group(group))
    table = placement_group_table(group)
    say(table["bundles"], table["strategy"], table["name"])
    say(group.bundle_count)
    outcome(group.wait, 0.2)
    outcome(remove_placement_group, None)


@program
def removal_of_what_waits():
    group = placement_group([{"CPU": 100}])
    ref = group.ready()
    say(group.wait(0.1))
    remove_placement_group(group)
    say(eventually(lambda: state_of(group) == "REMOVED"))
    outcome(ray.get, ref, timeout=10)


@program
def waits_that_end():
    group = placement_group([{"CPU": 100}])
    say(took(group.wait, 0.2) < 5, group.wait(0))
    ready, left = ray.wait([group.ready()], timeout=0.1)
    say(len(ready), len(left))
    outcome(ray.get, group.ready(), timeout=0.1)
    outcome(group.wait, -1)
    remove_placement_group(group)


@program
def a_group_waits_for_room():
    first = placement_group([{"CPU": 4}])
    ray.get(first.ready())
    second = placement_group([{"CPU": 3}])
    say(second.wait(0.2))
    remove_placement_group(first)
    say(second.wait(10), state_of(second))
    remove_placement_group(second)


@program
def names():
    group = placement_group([{"CPU": 1}], name="named")
    found = get_placement_group("named")
    say(found == group, found.bundle_specs, type(found).__name__)
    outcome(get_placement_group, "nobody", words=["Failed to look up placement group", "nobody"])
    outcome(get_placement_group, "")
    outcome(get_placement_group, None)
    remove_placement_group(group)
    say(eventually(lambda: state_of(group) == "REMOVED"))
    outcome(get_placement_group, "named")


@program
def names_that_are_taken():
    group = placement_group([{"CPU": 1}], name="twice")
    ray.get(group.ready())
    creates([{"CPU": 1}], name="twice", words=["twice", "already exist"])
    remove_placement_group(group)
    say(eventually(lambda: state_of(group) == "REMOVED"))
    again = placement_group([{"CPU": 1}], name="twice")
    say(again.wait(10), again == group)
    remove_placement_group(again)


@program
def empty_groups():
    empty = PlacementGroup.empty()
    say(empty.is_empty, empty == PlacementGroup.empty())
    say(ray.get(empty.ready()) == empty)
    say(empty.id.is_nil())
    outcome(lambda: empty == 1)


@program
def groups_travel():
    group = placement_group([{"CPU": 1}])

    @ray.remote(num_cpus=0)
    def describe(group):
        return group.bundle_specs, group.wait(10), group

    specs, ready, same = ray.get(describe.remote(group))
    say(specs, ready, same == group)
    say(pickle.loads(pickle.dumps(group)) == group)
    say(len({group, same}))
    remove_placement_group(group)


@program
def tasks_make_groups():
    @ray.remote(num_cpus=0)
    def make():
        group = placement_group([{"CPU": 1}], name="by a task")
        ray.get(group.ready())
        return group

    group = ray.get(make.remote())
    say(state_of(group), get_placement_group("by a task") == group)
    remove_placement_group(group)


@program
def the_driver_is_in_no_group():
    say(get_current_placement_group())
    say(ray.get_runtime_context().get_placement_group_id())
    say(ray.get_runtime_context().current_placement_group_id.is_nil())


@program
def resources_of_a_group():
    group = placement_group([{"CPU": 2}, {"CPU": 1}])
    ray.get(group.ready())
    say(eventually(lambda: ray.available_resources().get("CPU") == 1, 5))
    say(ray.cluster_resources()["CPU"])
    id = group.id.hex()
    total = ray.cluster_resources()
    names = [f"CPU_group_{id}", f"CPU_group_0_{id}", f"CPU_group_1_{id}", f"bundle_group_{id}"]
    say([total.get(name) for name in names])
    remove_placement_group(group)
    say(eventually(lambda: ray.available_resources().get("CPU") == 4, 5))


@program(alone=True)
def groups_end_with_their_job():
    with ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False):
        group = placement_group([{"CPU": 1}], name="ends")
        ray.get(group.ready())
    with ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False):
        say(group.id.hex() in placement_group_table(), ray.available_resources()["CPU"])
        outcome(get_placement_group, "ends")


@program(alone=True)
def groups_need_a_session():
    outcome(lambda: placement_group([{"CPU": 1}]).bundle_count)
    say(ray.is_initialized())


@program
def deprecated_bundles_warn():
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        group = placement_group([{"CPU": 1, "object_store_memory": 1}])
    say(sorted({w.category.__name__ for w in caught if "object_store_memory" in str(w.message)}))
    remove_placement_group(group)


@program
def topology_strategies():
    for topology in ([], {"": "PACK"}, {"a": "PACK"}, {"a": "NOPE"}):
        creates([{"CPU": 1}], strategy=None, topology_strategy=topology)
    creates(
        [{"CPU": 1}],
        strategy="PACK",
        topology_strategy={"ray.io/node-id": "PACK"},
        words=["cannot both be specified"],
    )
    group = placement_group([{"CPU": 1}], topology_strategy={"ray.io/node-id": "STRICT_PACK"})
    say(group.wait(10), placement_group_table(group)["strategy"])
    remove_placement_group(group)
    say(kinds(ValueError()))


if __name__ == "__main__":
    main()
