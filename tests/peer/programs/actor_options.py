# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Options of actor classes and of methods: what is taken, what is refused, and when."""

import ray
from program import main, outcome, program, say


class Plain:
    def one(self):
        return 1

    def two(self):
        return 1, 2

    def items(self, n):
        yield from range(n)


Actor = ray.remote(Plain)


def decorate(**options):
    return type(ray.remote(**options)(Plain)).__name__ and "made"


@program
def unknown_options():
    outcome(decorate, num_cpu=1, words=["num_cpu"])
    outcome(Actor.options, num_cpu=1, words=["num_cpu", "Invalid option keyword"])
    outcome(decorate, num_returns=2, words=["num_returns", "Invalid option keyword"])
    outcome(decorate, max_retries=2, words=["max_retries"])
    outcome(Actor.options, max_calls=2, words=["max_calls"])


@program
def wrong_amounts():
    outcome(decorate, num_cpus="1", words=["num_cpus"])
    outcome(decorate, num_cpus=-1, words=["cannot be negative"])
    outcome(decorate, num_gpus=-0.5, words=["cannot be negative"])
    outcome(decorate, num_cpus=0.00001, words=["cannot go beyond 0.0001"])
    outcome(decorate, memory="1GB", words=["memory"])
    outcome(decorate, memory=-1)
    outcome(decorate, num_gpus=1.5)
    outcome(decorate, num_cpus=1.5)
    outcome(decorate, num_cpus=True)


@program
def wrong_resources():
    outcome(decorate, resources={"CPU": 1}, words=["num_cpus"])
    outcome(decorate, resources={"GPU": 1}, words=["num_gpus"])
    outcome(decorate, resources={"slot": -1}, words=["cannot be negative"])
    outcome(decorate, resources=["slot"], words=["resources"])
    outcome(decorate, resources={"slot": 0.00001}, words=["0.0001"])


@program
def wrong_restarts_and_retries():
    for name in ("max_restarts", "max_task_retries", "max_pending_calls"):
        outcome(decorate, **{name: -2}, words=[name])
        outcome(decorate, **{name: "1"}, words=[name])
        outcome(decorate, **{name: 1.0})
        outcome(Actor.options, **{name: "-1"})
        outcome(Actor.options, **{name: -5}, words=[name])


@program
def wrong_concurrency():
    outcome(decorate, max_concurrency=-1, words=["max_concurrency"])
    outcome(decorate, max_concurrency="2", words=["max_concurrency"])
    outcome(decorate, max_concurrency=None)


@program
def wrong_names():
    outcome(decorate, name=5, words=["name"])
    outcome(Actor.options, name=5, words=["name"])
    outcome(decorate, name="")
    outcome(lambda: Actor.options(name="").remote(), words=["cannot be an empty string"])
    outcome(Actor.options, namespace=5, words=["namespace"])
    outcome(lambda: Actor.options(name="x", namespace="").remote(), words=["namespace"])


@program
def wrong_lifetimes():
    outcome(decorate, lifetime="forever", words=["lifetime", "detached"])
    outcome(Actor.options, lifetime="Detached", words=["lifetime"])
    outcome(Actor.options, lifetime=1)
    outcome(decorate, lifetime="non_detached")
    outcome(decorate, lifetime=None)
    outcome(decorate, lifetime="detached")
    outcome(lambda: hasattr(Actor.options(lifetime="detached"), "remote"))


@program
def wrong_get_if_exists():
    outcome(decorate, get_if_exists=1, words=["get_if_exists"])
    outcome(decorate, get_if_exists=True, words=["name"])
    outcome(Actor.options, get_if_exists=True, words=["name"])
    outcome(Actor.options, get_if_exists=None)
    outcome(decorate, get_if_exists=False)


@program
def wrong_kinds_of_others():
    outcome(decorate, runtime_env="x", words=["runtime_env"])
    outcome(decorate, scheduling_strategy=5, words=["scheduling_strategy"])
    outcome(decorate, scheduling_strategy="NEAR")
    outcome(decorate, label_selector="x", words=["label_selector"])
    outcome(decorate, label_selector={"a": 1})
    outcome(decorate, fallback_strategy={"a": 1}, words=["fallback_strategy"])
    outcome(decorate, accelerator_type=5, words=["accelerator_type"])
    outcome(decorate, enable_task_events=None, words=["enable_task_events"])
    outcome(decorate, allow_out_of_order_execution="yes")
    outcome(decorate, _labels=5)


@program
def parentheses_without_options():
    outcome(lambda: ray.remote(), words=["ray.remote decorator"])
    outcome(lambda: ray.remote(1, num_cpus=1), words=["ray.remote decorator"])
    outcome(lambda: ray.remote(Plain, num_cpus=1))


@program
def none_is_the_default():
    chosen = Actor.options(
        num_cpus=None, num_gpus=None, memory=None, resources=None, name=None, lifetime=None
    )
    say(ray.get(chosen.remote().one.remote()))


@program
def options_keep_the_others():
    Named = ray.remote(name="kept", num_cpus=0)(Plain)
    first = Named.options(max_concurrency=2).remote()
    say(ray.get(first.one.remote()), ray.get_actor("kept") == first)
    say(
        type(Named.options(num_cpus=1)).__name__ != "", hasattr(Named.options(num_cpus=1), "remote")
    )


@program
def remote_with_options_at_once():
    handle = Actor._remote(args=(), kwargs={}, num_cpus=0, name="at once")
    say(ray.get(handle.one.remote()), ray.get_actor("at once") == handle)
    say(ray.get(handle.two._remote(num_returns=2)))
    outcome(Actor._remote, args=[1], words=["too many positional arguments"])


@program
def several_returns_of_methods():
    handle = Actor.remote()
    say(ray.get(handle.two.remote()))
    a, b = handle.two.options(num_returns=2).remote()
    say(ray.get([b, a]))
    outcome(ray.get, handle.two.options(num_returns=3).remote(), words=["3", "2"])
    say(handle.two.options(num_returns=0).remote())
    outcome(ray.get, handle.one.options(num_returns=2).remote(), words=["2"])


@program
def the_method_decorator():
    @ray.remote
    class Marked:
        @ray.method(num_returns=2)
        def two(self):
            return "a", "b"

        @ray.method
        def bare(self):
            return "bare"

        @ray.method(num_returns=1)
        def one(self):
            return ("a", "b")

        @ray.method(num_returns=0)
        def none(self):
            return None

    marked = Marked.remote()
    say(ray.get(marked.two.remote()), ray.get(marked.bare.remote()), ray.get(marked.one.remote()))
    say(marked.none.remote(), ray.get(marked.two.options(num_returns=1).remote()))


def marked(**options):
    @ray.method(**options)
    def f(self):
        return 1

    return f(None)


@program
def wrong_uses_of_the_method_decorator():
    outcome(marked, num_returns=-1, words=["num_returns"])
    outcome(marked, num_returns="streaming", words=["streaming", "generator"])
    outcome(marked)


@program
def unknown_options_of_the_method_decorator():
    outcome(marked, num_cpus=1, words=["Unexpected keyword argument", "num_cpus"])
    outcome(marked, num_returns=2, max_retries=1, words=["Unexpected keyword", "max_retries"])
    outcome(lambda: ray.method(5), words=["ray.method decorator must be applied"])


@program
def wrong_values_for_the_method_decorator():
    outcome(marked, num_returns="two")
    outcome(marked, max_task_retries=-7)
    outcome(marked, concurrency_group=5)
    outcome(marked, retry_exceptions="yes")


@program
def wrong_options_of_methods():
    handle = Actor.remote()
    outcome(lambda: handle.one.options(num_cpus=1).remote(), words=["num_cpus"])
    outcome(lambda: handle.one.options(max_retries=1).remote(), words=["max_retries"])
    outcome(lambda: ray.get(handle.one.options(num_returns=-1).remote()))
    outcome(lambda: handle.one.options(num_returns="streaming"), words=["streaming", "generator"])
    outcome(lambda: handle.one.options(_num_objects_per_yield=2), words=["cannot be overridden"])
    say(ray.get(handle.one.options(name="shown", enable_task_events=False).remote()))


@program
def options_at_decoration_of_a_function_are_not_for_classes():
    def f():
        return 1

    outcome(lambda: ray.remote(max_restarts=1)(f), words=["max_restarts"])
    outcome(lambda: ray.remote(max_concurrency=1)(f), words=["max_concurrency"])
    outcome(lambda: ray.remote(retry_exceptions=True)(Plain), words=["retry_exceptions"])
    outcome(lambda: ray.remote(lifetime="detached")(f), words=["lifetime"])


@program
def actors_without_cpus_are_many():
    handles = [Actor.remote() for _ in range(6)]
    say(ray.get([h.one.remote() for h in handles]))
    say(ray.get([Actor.options(num_cpus=0).remote().one.remote() for _ in range(3)]))


@program
def resources_that_nobody_has_wait():
    handle = Actor.options(resources={"nowhere": 1}).remote()
    ready, _ = ray.wait([handle.one.remote()], timeout=0.5)
    say(ready)
    outcome(ray.get, handle.one.remote(), timeout=0.2)
    ray.kill(handle)
    outcome(ray.get, handle.one.remote(), words=["The actor is dead because"])


@program
def assigned_resources():
    @ray.remote
    class Asks:
        def held(self):
            return ray.get_runtime_context().get_assigned_resources()

    say(ray.get(Asks.options(num_cpus=2).remote().held.remote()))
    say(ray.get(Asks.options(num_cpus=0.5).remote().held.remote()))
    say(ray.get(Asks.remote().held.remote()))


if __name__ == "__main__":
    main()
