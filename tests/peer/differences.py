# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Programs in which Sheaf answers otherwise than Ray and is meant to: why, and what it says. Anything
else that differs is a bug."""

from typing import NamedTuple


class Difference(NamedTuple):
    reason: str
    lines: list  # What Sheaf says.


KNOWN: dict[str, Difference] = {
    "contexts.lengths_of_ids": Difference(
        "Ids are shorter: processes are named by their node and a number. Programs get "
        "ids from calls and compare them.",
        ["8 56 16", "(32, 32)"],
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
    "placement_group_calls.calls_to_a_removed_group": Difference(
        "A call to a group that was removed ends in an error; on Ray it waits for ever.",
        [
            "raises TaskPlacementGroupRemoved <TaskPlacementGroupRemoved, RayError>; 'placement group': yes",
            "raises ActorPlacementGroupRemoved <ActorPlacementGroupRemoved, RayError>; 'placement group': yes",
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
    "sessions.what_is_left_of_a_session": Difference(
        "A handle of a session that has ended raises ValueError; on Ray a bare Exception.",
        ["raises ValueError <ValueError>", "1"],
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
    "runtime_envs.wrong_environments_say_why": Difference(
        "A directory may be given to single calls, too, and not only to init.",
        [
            "raises TypeError <TypeError>; \"runtime_env['env_vars'] must be of type Dict[str, str]\": yes",
            "returns RemoteFunction(__main__.variable)",
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
}
