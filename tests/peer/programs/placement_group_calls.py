# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tasks and actors in placement groups: bundles, children, wrong options, ends."""

import ray
from program import eventually, main, outcome, program, say
from ray.util import get_current_placement_group, placement_group, remove_placement_group
from ray.util.placement_group import VALID_PLACEMENT_GROUP_STRATEGIES
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In


def group_of(*cpus):
    group = placement_group([{"CPU": cpu} for cpu in cpus])
    ray.get(group.ready())
    return group


def ended(group):
    remove_placement_group(group)
    return eventually(lambda: ray.available_resources().get("CPU") == 4)


@ray.remote
def current():
    return get_current_placement_group()


@ray.remote
def child_of():
    return ray.get(current.options(num_cpus=0.5).remote())


@program
def the_current_group():
    group = group_of(1)
    where = In(group)
    say(ray.get(current.options(scheduling_strategy=where).remote()) == group)
    say(ray.get(current.remote()))

    @ray.remote
    class Member:
        def group(self):
            return get_current_placement_group(), ray.get_runtime_context().get_placement_group_id()

    member = Member.options(scheduling_strategy=where, num_cpus=1).remote()
    found, id = ray.get(member.group.remote())
    say(found == group, id == group.id.hex())
    ray.kill(member)
    say(ended(group))


@program
def old_options_place_too():
    group = group_of(1, 1)
    say(ray.get(current.options(placement_group=group).remote()) == group)
    say(
        ray.get(current.options(placement_group=group, placement_group_bundle_index=1).remote())
        == group
    )
    say(ray.get(current.options(placement_group=None).remote()))
    say(ray.get(current.options(placement_group="default").remote()))
    say(ended(group))


@program
def children_are_captured_on_demand():
    group = group_of(2)
    for capture in (True, False, None):
        where = In(group, placement_group_capture_child_tasks=capture)
        found = ray.get(child_of.options(scheduling_strategy=where).remote())
        say(capture, found == group, found is None)
    say(ended(group))


@program
def children_can_leave():
    group = group_of(2)

    @ray.remote
    def parent():
        left = current.options(num_cpus=0.5, scheduling_strategy="DEFAULT").remote()
        stays = current.options(num_cpus=0.5).remote()
        old = current.options(num_cpus=0.5, placement_group=None).remote()
        return ray.get([left, stays, old])

    where = In(group, placement_group_capture_child_tasks=True)
    found = ray.get(parent.options(scheduling_strategy=where).remote())
    say([g == group for g in found], [g is None for g in found])
    say(ended(group))


@program
def capture_is_told():
    group = group_of(1)

    @ray.remote
    def captures():
        return ray.get_runtime_context().should_capture_child_tasks_in_placement_group

    for capture in (True, False):
        where = In(group, placement_group_capture_child_tasks=capture)
        say(ray.get(captures.options(scheduling_strategy=where).remote()))
    say(ray.get(captures.remote()))
    say(ray.get_runtime_context().should_capture_child_tasks_in_placement_group)
    say(ended(group))


@program
def a_blocked_parent_lends_its_bundle():
    group = group_of(1)

    @ray.remote
    def parent():
        return ray.get(current.remote())

    for index in (-1, 0):
        where = In(group, index, placement_group_capture_child_tasks=True)
        found = ray.get(parent.options(scheduling_strategy=where).remote(), timeout=20)
        say(index, found == group)
    say(ended(group))


@program
def wrong_bundle_indexes():
    group = group_of(1, 1)
    for index in (2, -2, 100):
        outcome(
            lambda i=index: current.options(scheduling_strategy=In(group, i)).remote(),
            words=["placement group bundle index", "is invalid"],
        )
        outcome(
            lambda i=index: current.options(
                placement_group=group, placement_group_bundle_index=i
            ).remote(),
            words=["placement group bundle index", "is invalid"],
        )
    outcome(lambda: In(group, 7).placement_group_bundle_index)
    say(ended(group))


@program
def an_index_without_a_group():
    outcome(
        lambda: current.options(placement_group_bundle_index=0).remote(),
        words=["If placement group is not set, the value of bundle index must be -1"],
    )
    outcome(lambda: ray.get(current.options(placement_group_capture_child_tasks=True).remote()))


@program
def calls_that_fit_no_bundle():
    group = group_of(1, 1)
    words = ["Cannot schedule", "fit into any bundles", "resource request"]
    where = In(group)
    outcome(lambda: current.options(scheduling_strategy=where, num_cpus=2).remote(), words=words)
    outcome(
        lambda: current.options(scheduling_strategy=where, resources={"slot": 1}).remote(),
        words=words,
    )
    outcome(lambda: current.options(scheduling_strategy=where, num_gpus=1).remote(), words=words)

    @ray.remote
    class Member:
        pass

    outcome(lambda: Member.options(scheduling_strategy=where, num_cpus=2).remote(), words=words)
    say(ended(group))


@program
def two_ways_at_once():
    group = group_of(1)
    outcome(
        lambda: current.options(scheduling_strategy=In(group), placement_group=group).remote(),
        words=["Placement groups should be specified via the scheduling_strategy option"],
    )
    outcome(
        lambda: current.options(
            scheduling_strategy=In(group), placement_group_bundle_index=0
        ).remote()
    )
    say(ended(group))


@program
def at_decoration():
    group = group_of(1)

    def decorate(**options):
        @ray.remote(**options)
        def f():
            return get_current_placement_group() == group

        return f

    say(ray.get(decorate(scheduling_strategy=In(group)).remote()))
    say(ray.get(decorate(placement_group=group, num_cpus=1).remote()))
    outcome(decorate, scheduling_strategy=1)
    outcome(lambda: type(decorate(scheduling_strategy="NOPE")).__name__)
    outcome(decorate, placement_group_bundle_index="0")
    say(ended(group))


@program
def wrong_types_of_options():
    outcome(lambda: current.options(scheduling_strategy=5))
    outcome(lambda: current.options(scheduling_strategy="NOPE").remote())
    outcome(lambda: current.options(placement_group=5).remote())
    outcome(lambda: current.options(placement_group_bundle_index="0").remote())
    outcome(lambda: In(None).placement_group)
    outcome(lambda: In().placement_group)


@program
def bundles_run_at_once():
    group = group_of(1, 1)

    @ray.remote
    class Meeting:
        def __init__(self):
            self.came = set()

        def come(self, who):
            self.came.add(who)

        def count(self):
            return len(self.came)

    meeting = Meeting.options(num_cpus=0).remote()

    @ray.remote
    def come(who):
        ray.get(meeting.come.remote(who))
        return eventually(lambda: ray.get(meeting.count.remote()) == 2)

    say(ray.get([come.options(scheduling_strategy=In(group, k)).remote(k) for k in (0, 1)]))
    ray.kill(meeting)
    say(ended(group))


@program
def a_bundle_holds_what_it_has():
    group = group_of(1)

    @ray.remote(num_cpus=1)
    class Member:
        def ping(self):
            return "pong"

    first = Member.options(scheduling_strategy=In(group, 0)).remote()
    say(ray.get(first.ping.remote()))
    second = Member.options(scheduling_strategy=In(group, 0)).remote()
    ready, _ = ray.wait([second.ping.remote()], timeout=0.5)
    say(len(ready))
    ray.kill(first)
    say(ray.get(second.ping.remote(), timeout=20))
    ray.kill(second)
    say(ended(group))


@program
def removal_ends_actors():
    group = group_of(1)

    @ray.remote(num_cpus=1)
    class Member:
        def ping(self):
            return "pong"

    member = Member.options(scheduling_strategy=In(group)).remote()
    say(ray.get(member.ping.remote()))
    remove_placement_group(group)

    def ping():
        return ray.get(member.ping.remote(), timeout=20)

    def dead():
        try:
            ping()
        except ray.exceptions.RayActorError:
            return True
        return False

    say(eventually(dead))
    outcome(ping, words=["placement group was removed", "The actor is dead because"])


@program
def removal_ends_tasks():
    group = group_of(1)

    @ray.remote(max_retries=0)
    def waits():
        import time

        time.sleep(100)

    ref = waits.options(scheduling_strategy=In(group)).remote()
    say(eventually(lambda: len(ray.wait([ref], timeout=0.5)[0]) == 0))
    remove_placement_group(group)
    outcome(ray.get, ref, timeout=20)


@program
def calls_to_a_removed_group():
    group = group_of(1)
    remove_placement_group(group)
    eventually(lambda: ray.util.placement_group_table(group)["state"] == "REMOVED")
    where = In(group)
    outcome(
        lambda: ray.get(current.options(scheduling_strategy=where).remote(), timeout=20),
        words=["placement group"],
    )

    @ray.remote
    class Member:
        def ping(self):
            return "pong"

    outcome(
        lambda: ray.get(
            Member.options(scheduling_strategy=where).remote().ping.remote(), timeout=20
        ),
        words=["placement group"],
    )


@program
def assigned_in_a_group():
    group = group_of(2)

    @ray.remote
    def assigned():
        return ray.get_runtime_context().get_assigned_resources()

    say(ray.get(assigned.options(scheduling_strategy=In(group)).remote()))
    say(ray.get(assigned.options(scheduling_strategy=In(group, 0), num_cpus=1.5).remote()))
    say(ended(group))


@program
def actors_without_cpus_in_a_group():
    group = group_of(1)

    @ray.remote
    class Member:
        def group(self):
            return get_current_placement_group() == group

    members = [Member.options(scheduling_strategy=In(group, 0)).remote() for _ in range(3)]
    say(ray.get([member.group.remote() for member in members], timeout=20))
    for member in members:
        ray.kill(member)
    say(ended(group))


@program
def names_of_the_strategy():
    group = group_of(1)
    where = In(placement_group=group, placement_group_bundle_index=0)
    say(where.placement_group == group, where.placement_group_bundle_index)
    say(where.placement_group_capture_child_tasks)
    say(In(group).placement_group_bundle_index)
    say(In(group, 0, True).placement_group_capture_child_tasks)
    say(sorted(VALID_PLACEMENT_GROUP_STRATEGIES))
    say(ended(group))


if __name__ == "__main__":
    main()
