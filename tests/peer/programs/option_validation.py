# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Options of tasks: which are refused, with which class, and where."""

import ray
from program import main, outcome, program, say


def function():
    return 1


def items():
    yield 1


remote = ray.remote(function)


def decorated(words=(), target=function, **given):
    """What the decorator says to the options."""

    def make():
        ray.remote(**given)(target)
        return "taken"

    say(given)
    outcome(make, words=words)


def both(name, values, words=()):
    """What the decorator and options() say to each value."""

    def give(value):
        remote.options(**{name: value})
        return "taken"

    for value in values:
        decorated(words, **{name: value})
        outcome(give, value, words=words)


@program
def unknown_options():
    words = ["Invalid option keyword nothing for remote functions"]
    outcome(remote.options, nothing=1, words=words)
    outcome(remote.options, num_cpu=1, words=["Invalid option keyword num_cpu"])
    outcome(lambda: ray.remote(nothing=1)(function), words=["nothing"])
    outcome(remote.options, 1)


@program
def options_of_actors_on_functions():
    for name, value in [
        ("max_restarts", 1),
        ("max_task_retries", 1),
        ("max_concurrency", 2),
        ("lifetime", "detached"),
        ("namespace", "n"),
        ("get_if_exists", True),
        ("concurrency_groups", {"io": 1}),
        ("max_pending_calls", 3),
        ("allow_out_of_order_execution", True),
    ]:
        both(name, [value], words=[f"Invalid option keyword {name} for remote functions"])


@program
def num_cpus():
    both("num_cpus", [0, 0.5, 2, 1.5, True, None])
    both("num_cpus", ["1", [1], {}], words=["The type of keyword 'num_cpus' must be"])
    both("num_cpus", [-1, -0.5], words=["The quantity of resource num_cpus cannot be negative"])
    both("num_cpus", [0.00001], words=["cannot go beyond 0.0001"])


@program
def num_gpus():
    both("num_gpus", [0, 0.5, 1, 2, None])
    both("num_gpus", ["1"], words=["The type of keyword 'num_gpus' must be"])
    both("num_gpus", [-1], words=["The quantity of resource num_gpus cannot be negative"])
    both("num_gpus", [1.5], words=["1.5"])


@program
def memory():
    both("memory", [0, 1000, 1000.5, None])
    both("memory", ["1G"], words=["The type of keyword 'memory' must be"])
    both("memory", [-1], words=["The quantity of resource memory cannot be negative"])
    both("object_store_memory", [None])
    both("object_store_memory", [100], words=["is not implemented for tasks"])


@program
def resources():
    both("resources", [{}, {"a": 1}, {"a": 0.5, "b": 0}, None])
    both("resources", ["a", [("a", 1)], 1], words=["The type of keyword 'resources' must be"])
    both("resources", [{"CPU": 1}, {"GPU": 1}], words=["Use the 'num_cpus' and 'num_gpus' keyword"])
    both("resources", [{"a": -1}], words=["The quantity of resource a cannot be negative"])
    both("resources", [{"a": 0.00001}], words=["cannot go beyond 0.0001"])
    both("resources", [{"a": "1"}])


@program
def fractions_above_one():
    for amount in [{"num_cpus": 1.5}, {"resources": {"a": 1.5}}, {"num_gpus": 2.0}]:
        outcome(lambda: type(remote.options(**amount).remote()).__name__)  # noqa: B023


@program
def num_returns():
    both("num_returns", [0, 1, 5, None, True])
    both("num_returns", [-1, -5], words=["num_returns"])
    both("num_returns", [1.5, [1]], words=["The type of keyword 'num_returns' must be"])
    outcome(remote.options, num_returns="many")


@program
def num_returns_of_generators():
    generator = ray.remote(items)
    for value in ["streaming", "dynamic", 2, None]:
        decorated(target=items, num_returns=value)
        outcome(lambda: hasattr(generator.options(num_returns=value), "remote"))  # noqa: B023
    words = ["can only be used with generator functions"]
    decorated(words, num_returns="streaming")
    decorated(words, num_returns="dynamic")


@program
def max_retries():
    both("max_retries", [0, 3, -1, True])
    both("max_retries", [-2], words=["max_retries", "-1 represents infinity"])
    both("max_retries", [1.5, "3"], words=["The type of keyword 'max_retries' must be"])


@program
def max_calls():
    decorated(max_calls=0)
    decorated(max_calls=5)
    decorated(max_calls=None)
    decorated(["max_calls"], max_calls=-1)
    decorated(["The type of keyword 'max_calls' must be"], max_calls=1.5)
    decorated(["The type of keyword 'max_calls' must be"], max_calls="1")
    outcome(
        remote.options, max_calls=1, words=["Setting 'max_calls' is not supported in '.options()'"]
    )


@program
def retry_exceptions():
    both("retry_exceptions", [True, False, [], [ValueError], (KeyError, OSError), [Exception]])
    words = ["retry_exceptions must be either a boolean or a list of exceptions"]
    both("retry_exceptions", [[1], ["ValueError"], [ValueError, 5], [BaseException]], words=words)
    both(
        "retry_exceptions", [1, "yes", ValueError], words=["The type of keyword 'retry_exceptions'"]
    )
    both("retry_exceptions", [None], words=["The type of keyword 'retry_exceptions'"])


@program
def names():
    both("name", ["n", "", "with space", None])
    both("name", [1, b"n", ["n"]], words=["The type of keyword 'name' must be"])


@program
def runtime_env():
    both("runtime_env", [{}, None, {"env_vars": {"A": "1"}}])
    both("runtime_env", ["x", [], 1], words=["The type of keyword 'runtime_env' must be"])
    both("runtime_env", [{"env_vars": {"A": 1}}], words=["env_vars"])
    both("runtime_env", [{"env_vars": "A=1"}], words=["env_vars"])


@program
def scheduling_strategy():
    both("scheduling_strategy", ["DEFAULT", "SPREAD", None])
    both(
        "scheduling_strategy", [1, {}, object], words=["The type of keyword 'scheduling_strategy'"]
    )
    outcome(lambda: remote.options(scheduling_strategy="FASTEST").remote(), words=["FASTEST"])


@program
def placement_group_options():
    both("placement_group", ["default", None])
    both("placement_group", [1], words=["The type of keyword 'placement_group' must be"])
    both("placement_group_bundle_index", [-1, 0])
    both("placement_group_bundle_index", ["0", None, 0.5], words=["placement_group_bundle_index"])
    both("placement_group_capture_child_tasks", [True, False, None])
    both("placement_group_capture_child_tasks", [1, "yes"], words=["The type of keyword"])


@program
def labels():
    both("label_selector", [{}, {"a": "b"}, {"a": "!b"}, {"a": "in(b, c)"}, {"a": "!in(b)"}, None])
    both("label_selector", ["a", [], 1], words=["The type of keyword 'label_selector' must be"])
    both("label_selector", [{"a b": "c"}, {"/": "x"}], words=["Invalid label key"])
    both(
        "label_selector",
        [{"a": "b c"}, {"a": "in(b"}, {"a": "!!b"}],
        words=["Invalid label selector value"],
    )


@program
def fallback_strategy():
    both("fallback_strategy", [[], [{"label_selector": {"a": "b"}}], None])
    both(
        "fallback_strategy", ["a", {}, 1], words=["The type of keyword 'fallback_strategy' must be"]
    )
    both("fallback_strategy", [["a"]], words=["must be a dictionary"])
    both("fallback_strategy", [[{}]], words=["Empty dictionary found in `fallback_strategy`"])
    both("fallback_strategy", [[{"num_cpus": 1}]], words=["Unsupported option found: 'num_cpus'"])
    both("fallback_strategy", [[{"label_selector": 1}]], words=["must be a dictionary"])
    both(
        "fallback_strategy",
        [[{"label_selector": {"a": "b c"}}]],
        words=["Invalid label selector value"],
    )


@program
def accelerator_type():
    both("accelerator_type", ["A100", None])
    both(
        "accelerator_type", [1, ["A100"]], words=["The type of keyword 'accelerator_type' must be"]
    )


@program
def backpressure():
    both("_generator_backpressure_num_objects", [1, 5, -1, None])
    both("_generator_backpressure_num_objects", [0], words=["=0 is not allowed"])
    both("_generator_backpressure_num_objects", ["1", 1.5], words=["The type of keyword"])
    both("_num_objects_per_yield", [1, None])
    both("_num_objects_per_yield", [0, -1], words=["_num_objects_per_yield"])
    both("_num_objects_per_yield", [2], words=["cannot be overridden per task call"])


@program
def task_events_and_labels():
    both("enable_task_events", [True, False])
    both(
        "enable_task_events", [1, "no"], words=["The type of keyword 'enable_task_events' must be"]
    )
    both("_labels", [{"a": "b"}, None])
    both("_labels", ["a"], words=["The type of keyword '_labels' must be"])


@program
def a_group_beside_a_strategy():
    group = ray.util.placement_group([{"CPU": 1}])
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
    words = ["Placement groups should be specified via the scheduling_strategy option"]
    outcome(remote.options, placement_group=group, scheduling_strategy="SPREAD", words=words)
    outcome(lambda: ray.get(remote.options(scheduling_strategy=strategy).remote()))
    outcome(lambda: ray.get(remote.options(placement_group=group).remote()))
    ray.util.remove_placement_group(group)


if __name__ == "__main__":
    main()
