# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Programs in which Sheaf answers otherwise than Ray and is meant to: why, and what it says. Anything
else that differs is a bug."""

from typing import NamedTuple


class Difference(NamedTuple):
    reason: str
    lines: list  # What Sheaf says.


KNOWN: dict[str, Difference] = {
    "tasks.callable_objects": Difference(
        "Builtins and callable objects may be remote, too.",
        ["returns RemoteFunction(functools.partial)", "returns RemoteFunction(builtins.print)"],
    ),
    "option_validation_actors.concurrency_groups_of_one_actor": Difference(
        "options() may give one actor other concurrency groups than its class has.",
        ["returns True"],
    ),
    "option_validation_actors.methods_unknown": Difference(
        "A wrong option of a method is a ValueError, as one of a task or an actor is.",
        [
            "raises ValueError <ValueError>; 'nothing': yes",
            "raises ValueError <ValueError>; 'num_cpus': yes",
            "raises ValueError <ValueError>",
        ],
    ),
    "exceptions.a_task_error_as_value": Difference(
        "An exception that was only put or returned is a value; get raises what was raised.",
        [
            "returns RayTaskError(ValueError) <RayTaskError, RayError, ValueError>",
            "returns RayTaskError(ValueError) <RayTaskError, RayError, ValueError>",
        ],
    ),
    "objects.get_of_a_tuple": Difference(
        "get takes a tuple of references, too.", ["returns [1, 2]"]
    ),
    "object_refs.lengths_of_ids": Difference(
        "Ids of objects and tasks have 16 bytes; job 5 is 00000005, as in every listing.",
        ["16 [16, 16, 4]", "00000005"],
    ),
    "serialization.errors_while_unpickling": Difference(
        "What reading a value raises reaches the caller as it is: `except ImportError` catches it.",
        [
            "raises RuntimeError <RuntimeError>; 'never comes back': yes",
            "raises RayTaskError(RuntimeError) <RayTaskError, RayError, RuntimeError>; 'never comes "
            "back': yes",
        ],
    ),
}
