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
    "actor_options.wrong_values_for_the_method_decorator": Difference(
        "Wrong values of options of methods are refused where they are written.",
        [
            "raises TypeError <TypeError>",
            "raises ValueError <ValueError>",
            "raises TypeError <TypeError>",
            "raises TypeError <TypeError>",
        ],
    ),
    "named_actors.a_name_goes_with_the_last_handle": Difference(
        "A handle that get_actor gave keeps the actor alive, as every handle does.",
        ["1", "1", "True"],
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
    "concurrency.groups_given_by_options": Difference(
        "options() of a class may give concurrency groups, too.", ["returns True", "returns 1"]
    ),
    "actors.what_is_no_class_is_no_actor": Difference(
        "What is neither a function nor a class is refused with a TypeError, with options, too.",
        [
            "raises AssertionError <AssertionError>; 'ray.remote decorator': yes",
            "raises TypeError <TypeError>",
        ],
    ),
}
