# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Programs in which Sheaf answers otherwise than Ray and is meant to: why, and what it says. Anything
else that differs is a bug."""

from typing import NamedTuple

import data_differences


class Difference(NamedTuple):
    reason: str
    lines: list  # What Sheaf says.


# Bugs: they differ, and are not mended yet. What becomes equal leaves this list.
OPEN: frozenset[str] = frozenset(data_differences.OPEN)

KNOWN: dict[str, Difference] = {
    "actor_options.wrong_values_for_the_method_decorator": Difference(
        "Wrong values of options of methods are refused where they are written.",
        [
            "raises TypeError <TypeError>",
            "raises ValueError <ValueError>",
            "raises TypeError <TypeError>",
            "raises TypeError <TypeError>",
        ],
    ),
    "actors.what_is_no_class_is_no_actor": Difference(
        "What is neither a function nor a class is refused with a TypeError, with options, too.",
        [
            "raises AssertionError <AssertionError>; 'ray.remote decorator': yes",
            "raises TypeError <TypeError>",
        ],
    ),
    "concurrency.groups_given_by_options": Difference(
        "options() of a class may give concurrency groups, too.", ["returns True", "returns 1"]
    ),
    "concurrency.groups_that_are_not_there": Difference(
        "A concurrency group that the actor does not have is refused by the call that names it, and "
        "by remote() where a method does; in Ray such a call ends the actor.",
        ["raises ValueError <ValueError>", "raises ValueError <ValueError>; 'missing': yes"],
    ),
    "concurrency.wrong_groups": Difference(
        "Wrong concurrency groups are refused where they are written.",
        [
            "raises ValueError <ValueError>",
            "raises ValueError <ValueError>",
            "raises ValueError <ValueError>",
            "raises TypeError <TypeError>",
        ],
    ),
    "contexts.lengths_of_ids": Difference(
        "Ids are shorter: processes are named by their node and a number. Programs get "
        "ids from calls and compare them.",
        ["8 56 16", "(32, 32)"],
    ),
    "drawn.seed_0004": Difference(
        "A misspelt option of a call is refused by options(), where it is written, not by remote().",
        [
            "actor {'max_restarts': 1}",
            "method {'max_task_retries': 0}",
            "method(): fine",
            "decorated: fine",
            "options {'num_gpus': 0}",
            "options(): fine",
            "made with ()",
            "remote(): fine",
            "options of the call {'num_cpus': 1}",
            "options() of the method: raises TypeError <TypeError>",
        ],
    ),
    "exceptions.a_task_error_as_value": Difference(
        "An exception that was only put or returned is a value; get raises what was raised.",
        [
            "returns RayTaskError(ValueError) <RayTaskError, RayError, ValueError>",
            "returns RayTaskError(ValueError) <RayTaskError, RayError, ValueError>",
        ],
    ),
    "named_actors.a_name_goes_with_the_last_handle": Difference(
        "A handle that get_actor gave keeps the actor alive, as every handle does.",
        ["1", "1", "True"],
    ),
    "object_refs.lengths_of_ids": Difference(
        "Ids of objects and tasks have 16 bytes; job 5 is 00000005, as in every listing.",
        ["16 [16, 16, 4]", "00000005"],
    ),
    "objects.get_of_a_tuple": Difference(
        "get takes a tuple of references, too.", ["returns [1, 2]"]
    ),
    "option_validation_actors.concurrency_groups_of_one_actor": Difference(
        "options() may give one actor other concurrency groups than its class has.",
        ["returns True"],
    ),
    "placement_group_calls.calls_to_a_removed_group": Difference(
        "A call to a group that was removed ends in an error; on Ray it waits for ever.",
        [
            "raises TaskPlacementGroupRemoved <TaskPlacementGroupRemoved, RayError>; 'placement group': yes",
            "raises ActorPlacementGroupRemoved <ActorPlacementGroupRemoved, RayError>; 'placement group': yes",
        ],
    ),
    "placement_groups.negative_amounts": Difference(
        "A bundle that asks for less than nothing is a mistake, and is refused where it "
        "is written.",
        ["raises ValueError <ValueError>", "raises ValueError <ValueError>"],
    ),
    "placement_groups.resources_of_a_group": Difference(
        "Bundles are no resources of their own, so that lists of resources stay short; "
        "placement_group_table() says what each bundle holds.",
        ["True", "4.0", "[None, None, None, None]", "True"],
    ),
    "pools.imap_gives_what_is_there": Difference(
        "imap raises what a call raised, as multiprocessing.Pool does; on Ray the error "
        "comes as a value.",
        [
            "1",
            "raises ValueError <ValueError>",
            "returns 5",
            "raises StopIteration <StopIteration>",
            "raises TimeoutError <>",
            "None",
        ],
    ),
    "queues.shutdown": Difference(
        "After shutdown() a queue's methods raise RayActorError, which says that it has "
        "ended; on Ray AttributeError.",
        [
            "None",
            "raises ActorDiedError <ActorDiedError, RayActorError, RayError>",
            "raises ActorDiedError <ActorDiedError, RayActorError, RayError>",
            "raises ActorDiedError <ActorDiedError, RayActorError, RayError>",
            "None",
            "raises ActorDiedError <ActorDiedError, RayActorError, RayError>",
            "None",
            "raises ActorDiedError <ActorDiedError, RayActorError, RayError>",
        ],
    ),
    "runtime_envs.unknown_fields": Difference(
        "A field that does not exist is refused: a misspelt one would be without effect.",
        [
            "raises ValueError <ValueError>",
            "raises ValueError <ValueError>",
            "raises ValueError <ValueError>",
        ],
    ),
    "runtime_envs.wrong_environments_say_why": Difference(
        "A directory may be given to single calls, too, and not only to init.",
        [
            "raises TypeError <TypeError>; \"runtime_env['env_vars'] must be of type Dict[str, str]\": yes",
            "returns RemoteFunction(__main__.variable)",
        ],
    ),
    "serialization.errors_while_unpickling": Difference(
        "What reading a value raises reaches the caller as it is: `except ImportError` catches it.",
        [
            "raises RuntimeError <RuntimeError>; 'never comes back': yes",
            "raises RayTaskError(RuntimeError) <RayTaskError, RayError, RuntimeError>; 'never comes "
            "back': yes",
        ],
    ),
    "sessions.addresses_of_nothing": Difference(
        "An address is the session directory of a node or HOST:PORT; where no node "
        "answers, init raises ConnectionError.",
        [
            "nonsense",
            "raises ConnectionError <ConnectionError, OSError>",
            "5",
            "raises TypeError <TypeError>",
        ],
    ),
    "sessions.levels_of_logging": Difference(
        "A log level that logging does not know is refused where it is written.",
        [
            "returns True",
            "raises ValueError <ValueError>",
            "raises ValueError <ValueError>",
            "raises ValueError <ValueError>",
            "returns TEXT",
        ],
    ),
    "sessions.what_is_left_of_a_session": Difference(
        "A handle of a session that has ended raises ValueError; on Ray a bare Exception.",
        ["raises ValueError <ValueError>", "1"],
    ),
    "strategies.node_resources": Difference(
        'A resource "node:ADDRESS" that no node has is refused where the call is made; on'
        " Ray the call waits for ever.",
        [
            "['CPU', 'memory', 'node', 'node', 'object_store_memory']",
            "1.0 1.0",
            "True",
            "True",
            "True",
            "ends in ValueError <ValueError>",
        ],
    ),
    "tasks.callable_objects": Difference(
        "Builtins and callable objects may be remote, too.",
        ["returns RemoteFunction(functools.partial)", "returns RemoteFunction(builtins.print)"],
    ),
    "contexts.cancelled_or_not": Difference(
        "A call of an async actor may ask, too, whether it was cancelled.",
        [
            "raises RuntimeError <RuntimeError>; 'only available when the process is a worker': yes",
            "False",
            "False",
            "returns False",
        ],
    ),
    "contexts.ids_of_a_task": Difference(
        "The id of an object is not its task's with digits behind it: ref.task_id() gives the task's.",
        ["True True", "True ('str', True) ('str', True) None None", "True False", "True"],
    ),
    "generators.generators_that_return_others": Difference(
        "A generator that a plain function returns is no value, and is refused as one; on Ray its first item is the result, and the others are lost.",
        [
            "[0, 10, 20]",
            "raises RayTaskError(TypeError) <RayTaskError, RayError, TypeError>",
            "[0, 1]",
        ],
    ),
    "object_refs.nil_and_random_references": Difference(
        "A reference holds its object. None is made of digits, and none names nothing.",
        ["ends in NotImplementedError <NotImplementedError, RuntimeError>"],
    ),
    "object_refs.references_made_of_bytes": Difference(
        "A reference holds its object, and is not made of an id: pickle the reference itself.",
        ["ends in TypeError <TypeError>"],
    ),
    "placement_groups.the_table_of_all": Difference(
        "A removed group is in no list of all; placement_group_table(group) says that it is REMOVED.",
        ["dict True", "True", "ends in KeyError <KeyError, LookupError>"],
    ),
    "strategies.wrong_label_selectors": Difference(
        "A label selector whose value is None is refused: nobody could say what it asks for.",
        [
            "{'zone': 1}",
            "raises TypeError <TypeError>",
            "{1: 'a'}",
            "raises TypeError <TypeError>",
            "zone",
            "raises TypeError <TypeError>",
            "['zone']",
            "raises TypeError <TypeError>",
            "{'zone': ''}",
            "returns True",
            "{'zone': '!'}",
            "raises ValueError <ValueError>",
            "{'zone': 'in()'}",
            "raises ValueError <ValueError>",
            "{'zone': 'in(a'}",
            "raises ValueError <ValueError>",
            "{'zone': '!in()'}",
            "raises ValueError <ValueError>",
            "{'zone': 'a b'}",
            "raises ValueError <ValueError>",
            "{'zo ne': 'a'}",
            "raises ValueError <ValueError>",
            "{'': 'a'}",
            "raises ValueError <ValueError>",
            "{'zone': '-a'}",
            "raises ValueError <ValueError>",
            "{'zone': 'a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-a-'}",
            "raises ValueError <ValueError>",
            "{'prefix.io/zone': 'a'}",
            "returns True",
            "{'zone': None}",
            "raises TypeError <TypeError>",
            "{'zone': ['a']}",
            "raises TypeError <TypeError>",
        ],
    ),
    "states.wrong_filters": Difference(
        "Wrong filters are plain ValueErrors: Ray's are of pydantic, whose class derives from it.",
        [
            "raises ValueError <ValueError>",
            "raises RayStateApiException <>",
            "raises ValueError <ValueError>",
            "raises RayStateApiException <>",
            "raises RayStateApiException <>",
        ],
    ),
    "tune_experiments.bad_arguments_of_tuner": Difference(
        "What does not fit is refused where it is given, a value of a wrong type by a TypeError.",
        [
            "raises ValueError <ValueError>",
            "raises ValueError <ValueError>",
            "raises TypeError <TypeError>",
            "raises TypeError <TypeError>",
        ],
    ),
}

KNOWN.update({name: Difference(*known) for name, known in data_differences.KNOWN.items()})
