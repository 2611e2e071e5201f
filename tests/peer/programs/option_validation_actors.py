# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Options of actors and of their methods: which are refused, with which class, and where."""

import ray
from program import main, outcome, program, say


class Plain:
    def f(self):
        return 1

    def items(self):
        yield 1


Remote = ray.remote(Plain)


def both(option, values, words=(), **others):
    """What the decorator and options() say to each value."""

    def decorate(value):
        ray.remote(**{option: value}, **others)(Plain)
        return "taken"

    def give(value):
        Remote.options(**{option: value}, **others)
        return "taken"

    for value in values:
        say(option, value)
        outcome(decorate, value, words=words)
        outcome(give, value, words=words)


def method(name, values, words=()):
    """What @ray.method and options() of a method say to each value."""

    def decorate(value):
        @ray.remote
        class A:
            @ray.method(**{name: value})
            def f(self):
                pass

        return "taken"

    def give(value):
        actor.f.options(**{name: value})
        return "taken"

    actor = Remote.remote()
    for value in values:
        say(name, value)
        outcome(decorate, value, words=words)
        outcome(give, value, words=words)


@program
def unknown_options():
    both("nothing", [1], words=["Invalid option keyword nothing for actors", "nothing"])
    for name, value in [
        ("num_returns", 2),
        ("max_calls", 1),
        ("max_retries", 1),
        ("retry_exceptions", True),
    ]:
        both(name, [value], words=[f"Invalid option keyword {name} for actors"])


@program
def amounts():
    both("num_cpus", [0, 0.5, 2, None])
    both("num_cpus", [-1], words=["The quantity of resource num_cpus cannot be negative"])
    both("num_cpus", ["1"], words=["The type of keyword 'num_cpus' must be"])
    both("num_gpus", [1.5], words=["1.5"])
    both("memory", [-1], words=["The quantity of resource memory cannot be negative"])
    both("object_store_memory", [100, 0, None])
    both("object_store_memory", [1.5, -1], words=["object_store_memory"])
    both("resources", [{"CPU": 1}], words=["Use the 'num_cpus' and 'num_gpus' keyword"])


@program
def restarts_and_retries():
    both("max_restarts", [0, 3, -1])
    both("max_restarts", [-2], words=["max_restarts", "-1 represents infinity"])
    both("max_restarts", [1.5, "1"], words=["The type of keyword 'max_restarts' must be"])
    both("max_task_retries", [0, 3, -1, None])
    both("max_task_retries", [-2], words=["max_task_retries", "-1 represents infinity"])
    both("max_task_retries", [1.5, "1"], words=["The type of keyword 'max_task_retries' must be"])


@program
def concurrency():
    both("max_concurrency", [1, 10, None])
    both("max_concurrency", [-1], words=["max_concurrency"])
    both("max_concurrency", [1.5, "1"], words=["The type of keyword 'max_concurrency' must be"])
    both("max_pending_calls", [0, 1, -1, None])
    both("max_pending_calls", [-2], words=["max_pending_calls", "-1 represents infinity"])
    both("max_pending_calls", ["1"], words=["The type of keyword 'max_pending_calls' must be"])
    both("allow_out_of_order_execution", [True, False, None])
    both("allow_out_of_order_execution", [1], words=["The type of keyword"])


@program
def lifetime_and_names():
    both("lifetime", ["detached", "non_detached"], name="n")
    both("lifetime", [None])
    both("lifetime", ["forever", ""], words=["actor `lifetime` argument must be one of"])
    both("lifetime", [1], words=["The type of keyword 'lifetime' must be"])
    both("namespace", ["n", None, ""])
    both("namespace", [1], words=["The type of keyword 'namespace' must be"])
    both("name", ["n", None])
    both("name", [1], words=["The type of keyword 'name' must be"])


@program
def get_if_exists():
    both("get_if_exists", [True, False], name="n")
    both("get_if_exists", [True], words=["The actor name must be specified to use `get_if_exists`"])
    both("get_if_exists", [False])
    both("get_if_exists", [1, None], words=["The type of keyword 'get_if_exists' must be"])


@program
def empty_names():
    outcome(
        lambda: Remote.options(name="").remote(), words=["Actor name cannot be an empty string"]
    )
    outcome(
        lambda: Remote.options(namespace="", name="n").remote(),
        words=['"" is not a valid namespace'],
    )


@program
def detached_without_name():
    def start():
        actor = Remote.options(lifetime="detached").remote()
        value = ray.get(actor.f.remote())
        ray.kill(actor)
        return value

    outcome(start, words=["name"])


@program
def concurrency_groups():
    def decorate(groups):
        ray.remote(concurrency_groups=groups)(Plain)
        return "taken"

    for groups in [{"io": 1}, {"io": 2, "compute": 1}, {}, None, []]:
        say(groups)
        outcome(decorate, groups)
    for groups in ["io", 1, ("io", 1)]:
        say(groups)
        outcome(decorate, groups, words=["The type of keyword 'concurrency_groups' must be"])


@program
def concurrency_groups_of_one_actor():
    words = ["Setting 'concurrency_groups' is not supported in '.options()'"]
    outcome(lambda: hasattr(Remote.options(concurrency_groups={"io": 1}), "remote"), words=words)


@program
def strategies_and_labels():
    both("scheduling_strategy", ["DEFAULT", "SPREAD", None])
    both("scheduling_strategy", [1], words=["The type of keyword 'scheduling_strategy' must be"])
    both("label_selector", [{"a b": "c"}], words=["Invalid label key"])
    both("label_selector", ["x"], words=["The type of keyword 'label_selector' must be"])
    both("fallback_strategy", [[{}]], words=["Empty dictionary found"])
    both("runtime_env", ["x"], words=["The type of keyword 'runtime_env' must be"])
    both("accelerator_type", [1], words=["The type of keyword 'accelerator_type' must be"])
    both("enable_task_events", ["x"], words=["The type of keyword 'enable_task_events' must be"])


@program
def backpressure_of_actors():
    both("_actor_generator_backpressure_num_objects", [1, -1, None])
    both("_actor_generator_backpressure_num_objects", [0, -2], words=["must be > 0"])
    both("_actor_generator_backpressure_num_objects", ["x"], words=["The type of keyword"])


@program
def methods_unknown():
    outcome(lambda: ray.method(nothing=1)(Plain.f), words=["nothing"])
    outcome(lambda: ray.method(num_cpus=1)(Plain.f), words=["num_cpus"])
    outcome(ray.method, 5)


@program
def methods_num_returns():
    method("num_returns", [0, 1, 2, None])
    method("num_returns", [-1], words=["num_returns must be >= 0"])
    method("num_returns", ["streaming"], words=["can only be used with generator functions"])


@program
def methods_of_generators():
    actor = Remote.remote()
    for value in ["streaming", "dynamic", 1, None]:
        say(value)
        outcome(lambda: hasattr(actor.items.options(num_returns=value), "remote"))  # noqa: B023


@program
def methods_with_a_wrong_group():
    @ray.remote(concurrency_groups={"io": 1})
    class A:
        @ray.method(concurrency_group="io")
        def f(self):
            return 1

        def g(self):
            return 2

    actor = A.remote()
    say(ray.get([actor.f.remote(), actor.g.options(concurrency_group="io").remote()]))


@program
def actor_classes_are_not_called():
    outcome(Remote, words=["Actors cannot be instantiated directly", "Plain.remote()"])
    outcome(lambda: ray.remote(Remote), words=["must be applied to either a function or a class"])


if __name__ == "__main__":
    main()
