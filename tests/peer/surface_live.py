# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a running session gives: the attributes of references, handles, contexts and rows, which no
class says beforehand. surface.py writes them down."""

import time

import ray


def attributes(thing, methods=False):
    """{name: "method" or its type} of what `dir` lists and has no leading underscore; methods that
    a class says beforehand only where they are asked for."""
    out = {}
    for name in dir(thing):
        if name[0] != "_":
            try:
                value = getattr(thing, name)
            except Exception as error:
                out[name] = f"raises {type(error).__name__}"
                continue
            if methods or not callable(value):
                out[name] = "method" if callable(value) else f"a {type(value).__name__}"
    return out


def _kind(value):
    return f"a {type(value).__name__}"


def keys(rows):
    """{key: type of its value} of a dict, or of the first row of a list."""
    row = rows if isinstance(rows, dict) else rows[0]
    return {str(key): _kind(value) for key, value in row.items()}


PRIVATE = {
    "a handle": """
        _actor_id _ray_actor_id _ray_method_signatures _ray_is_cross_language _ray_session_job
        _ray_actor_language _ray_actor_creation_function_descriptor _ray_method_is_generator
        _ray_method_num_returns _ray_method_decorators _ray_function_descriptor _ray_weak_ref
        _ray_method_shells _ray_enable_task_events _serialization_helper __ray_ready__
        __ray_terminate__ __ray_call__ _actor_method_call _remote
    """,
    "a method of a handle": "_remote _method_name _actor _num_returns options remote bind",
    "a remote function": """
        _remote _function _function_name _function_descriptor _default_options _num_returns
        _function_signature _is_cross_language _language _num_cpus _num_gpus _max_calls _max_retries
        _resources _runtime_env _uuid _last_export_cluster_and_job _decorator remote options bind
        __name__ __module__ __doc__ __wrapped__ __qualname__ __signature__
    """,
    "an actor class": """
        _remote remote options bind __ray_metadata__ _default_options __ray_actor_class__
        __name__ __module__ __doc__ __qualname__
        __ray_metadata__.modified_class __ray_metadata__.class_name __ray_metadata__.method_meta
        __ray_metadata__.method_meta.methods __ray_metadata__.method_meta.signatures
        __ray_metadata__.method_meta.num_returns __ray_metadata__.method_meta.decorators
        __ray_metadata__.actor_creation_function_descriptor __ray_metadata__.language
        __ray_metadata__.class_id __ray_metadata__.num_cpus __ray_metadata__.num_gpus
        __ray_metadata__.resources __ray_metadata__.memory __ray_metadata__.runtime_env
        __ray_metadata__.max_restarts __ray_metadata__.max_task_retries
        __ray_metadata__.concurrency_groups
    """,
}


def _private_of(thing, names):
    out = {}
    for name in names.split():
        value = thing
        try:
            for part in name.split("."):
                value = getattr(value, part)
        except AttributeError:
            continue
        out[name] = "method" if callable(value) else f"a {type(value).__name__}"
    return out


def live(describe, members):
    """{title: {name: description}} of what a session of one CPU gives."""
    context = ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    try:
        return _live(context)
    finally:
        ray.shutdown()


def _live(context):
    @ray.remote
    def one():
        return 1

    @ray.remote
    def many():
        yield 1

    @ray.remote
    class Actor:
        def method(self):
            return 1

    out = {
        "what init gives": attributes(context, methods=True),
        "its address_info": keys(context.address_info),
    }
    ref, generator, handle = one.remote(), many.remote(), Actor.options(name="a").remote()
    ray.get([ref, handle.method.remote()])
    group = ray.util.placement_group([{"CPU": 1}], name="g")
    ray.get(group.ready())
    out["an ObjectRef"] = attributes(ref)
    out["an ObjectRefGenerator"] = attributes(generator)
    out["a PlacementGroup"] = attributes(group)
    out["get_runtime_context()"] = attributes(ray.get_runtime_context())
    out["get_runtime_context().get()"] = keys(ray.get_runtime_context().get())
    things = {
        "a handle": handle,
        "a method of a handle": handle.method,
        "a remote function": one,
        "an actor class": Actor,
    }
    for title, thing in things.items():
        out[f"{title}, names that libraries touch"] = _private_of(thing, PRIVATE[title])
        out[title] = attributes(thing, methods=True)
    out["rows of nodes()"] = keys(ray.nodes())
    table = ray.util.placement_group_table(group)
    out["placement_group_table(group)"] = keys(table)
    out["placement_group_table(group)['stats']"] = keys(table.get("stats", {}))
    out["cluster_resources()"] = {
        name: text
        for name, text in keys(ray.cluster_resources()).items()
        if ":" not in name and "_group_" not in name
    }
    out.update(_made(group))
    out.update(_raised(handle))
    time.sleep(1.5)  # The record of tasks comes late.
    out["rows of timeline()"] = keys([row for row in ray.timeline() if row["ph"] == "X"] or {})
    return out


def _made(group):
    """Objects that programs make and read."""
    strategies = ray.util.scheduling_strategies
    from ray.util.actor_pool import ActorPool
    from ray.util.metrics import Counter
    from ray.util.queue import Queue

    made = {
        "In('a')": lambda: strategies.In("a"),
        "NotIn('a')": lambda: strategies.NotIn("a"),
        "Exists()": lambda: strategies.Exists(),
        "a NodeAffinitySchedulingStrategy": lambda: strategies.NodeAffinitySchedulingStrategy(
            "0" * 56, True
        ),
        "a NodeLabelSchedulingStrategy": lambda: strategies.NodeLabelSchedulingStrategy(
            {"a": strategies.In("b")}
        ),
        "a PlacementGroupSchedulingStrategy": lambda: strategies.PlacementGroupSchedulingStrategy(
            group
        ),
        "a Queue": lambda: Queue(actor_options={"num_cpus": 0}),
        "an ActorPool": lambda: ActorPool([]),
        "a Counter": lambda: Counter("c"),
        "a JobConfig": lambda: ray.job_config.JobConfig(),
        "a RuntimeEnv": lambda: ray.runtime_env.RuntimeEnv(env_vars={"A": "b"}),
        "a RuntimeEnvConfig": lambda: ray.runtime_env.RuntimeEnvConfig(),
        "an ActorID": lambda: ray.ActorID.nil() if hasattr(ray.ActorID, "nil") else None,
    }
    out = {}
    for title, make in made.items():
        try:
            out[title] = attributes(make())
        except (AttributeError, NotImplementedError):
            out[title] = {}
    return out


def _raised(handle):
    """Exceptions as callers catch them."""

    @ray.remote
    def fails():
        raise KeyError("k")

    @ray.remote
    def sleeps():
        time.sleep(60)

    def caught(ref):
        try:
            ray.get(ref)
        except Exception as error:
            return attributes(error)
        return {}

    out = {"a RayTaskError": caught(fails.remote())}
    ref = sleeps.remote()
    time.sleep(0.5)
    ray.cancel(ref)
    out["a TaskCancelledError"] = caught(ref)
    ray.kill(handle)
    out["an ActorDiedError"] = caught(handle.method.remote())
    return out
