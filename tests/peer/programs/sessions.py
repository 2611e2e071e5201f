# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""init, shutdown and what lies between: return values, wrong arguments, calls outside of sessions."""

import os
import sys

import ray
from program import main, outcome, program, say

QUIET = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}


def start(**arguments):
    return ray.init(**{"num_cpus": 1, **QUIET, **arguments})


@ray.remote
def one():
    return 1


@program(alone=True)
def init_and_shutdown():
    say(ray.is_initialized())
    start()
    say(ray.is_initialized(), ray.get(one.remote()))
    say(ray.shutdown())
    say(ray.is_initialized())
    say(ray.shutdown(), ray.shutdown())
    start()
    say(ray.get(one.remote()))


@program(alone=True)
def what_init_gives():
    context = start()
    say(type(context).__name__ != "", sorted(context.address_info))
    say(context.address_info["node_id"] == ray.get_runtime_context().get_node_id())
    say(context["address"] == context.address_info["address"])
    say(context.python_version == "{}.{}.{}".format(*sys.version_info[:3]))
    say(context.ray_version.split("+")[0], ray.__version__.split("+")[0])
    say(context.dashboard_url, type(context.ray_commit).__name__)
    say("address" in context, context.get("nothing"), context.get("nothing", 5))
    say(sorted(context) == sorted(context.address_info), len(context) == len(context.address_info))
    outcome(lambda: context["nothing"])
    say(isinstance(context.address_info["session_dir"], str))


@program(alone=True)
def as_a_context_manager():
    with start() as context:
        say(ray.is_initialized(), ray.get(one.remote()), context.address_info is not None)
    say(ray.is_initialized())
    try:
        with start():
            raise ValueError("out of the block")
    except ValueError as error:
        say(str(error), ray.is_initialized())


@program(alone=True)
def disconnect():
    context = start()
    context.disconnect()
    say(ray.is_initialized())
    context.disconnect()
    say(ray.is_initialized())


@program(alone=True)
def init_twice():
    first = start()
    outcome(
        start, words=["Maybe you called ray.init twice by accident?", "ignore_reinit_error=True"]
    )
    again = start(ignore_reinit_error=True)
    say(again.address_info == first.address_info, ray.is_initialized())
    say(start(num_cpus=7, ignore_reinit_error=True) is not None, ray.cluster_resources()["CPU"])
    outcome(lambda: type(ray.init(ignore_reinit_error=True)).__name__ == type(first).__name__)


@program(alone=True)
def unknown_arguments():
    outcome(start, nope=1, words=["Unknown keyword argument(s)", "nope"])
    outcome(start, num_cpu=1)
    outcome(start, redis_address="x")
    outcome(start, storage="x")
    outcome(start, allow_multiple=True)
    say(ray.is_initialized())


@program(alone=True)
def wrong_amounts():
    for arguments in (
        {"num_cpus": -1},
        {"num_cpus": "1"},
        {"num_gpus": -1},
        {"resources": {"CPU": 1}},
        {"resources": {"slot": -1}},
        {"resources": ["slot"]},
        {"resources": "slot"},
        {"resources": {"slot": "1"}},
        {"object_store_memory": 1},
        {"object_store_memory": "many"},
        {"_system_config": 5},
    ):
        say(arguments)
        outcome(lambda a=arguments: type(start(**a)).__name__ and ray.is_initialized())
        ray.shutdown()


@program(alone=True)
def amounts_of_the_node():
    start(num_cpus=3, num_gpus=1, resources={"slot": 2}, object_store_memory=100 * 1024 * 1024)
    total = ray.cluster_resources()
    say(total["CPU"], total["GPU"], total["slot"], total["object_store_memory"])
    say(type(total["memory"]).__name__, total["memory"] > 0)
    ray.shutdown()
    start(num_cpus=0)
    say("CPU" in ray.cluster_resources())


@program(alone=True)
def addresses_of_nothing():
    for address in ("127.0.0.1:1", "nonsense", "auto", ":", "http://127.0.0.1:1", "", 5):
        say(address)
        outcome(lambda a=address: type(ray.init(address=a, **QUIET)).__name__)
        ray.shutdown()


@program(alone=True)
def addresses_say_why():
    outcome(
        lambda: ray.init(address="auto", **QUIET),
        words=["Could not find any running Ray instance", "ray start"],
    )
    say(ray.is_initialized())


@program(alone=True)
def arguments_of_a_node_that_runs():
    context = start(namespace="x")
    address = context.address_info["address"]
    ray.shutdown()
    say(isinstance(address, str))
    local = ray.init(address="local", num_cpus=2, **QUIET)
    say(ray.cluster_resources()["CPU"], local.address_info["address"] != address)


@program(alone=True)
def local_mode():
    outcome(start, local_mode=True, words=["`local_mode` is no longer supported"])


@program(alone=True)
def the_first_call_starts_a_session():
    say(ray.is_initialized())
    say(ray.get(one.remote()), ray.is_initialized())


@program(alone=True)
def put_starts_a_session():
    say(ray.get(ray.put(5)), ray.is_initialized())


@program(alone=True)
def actors_start_a_session():
    @ray.remote
    class A:
        def ping(self):
            return "pong"

    say(ray.get(A.remote().ping.remote()), ray.is_initialized())


@program(alone=True)
def decorators_start_none():
    @ray.remote
    def f():
        pass

    f.options(num_cpus=2)
    ray.put.__name__
    ray.get_runtime_context()
    say(ray.is_initialized())


def asks(name, *arguments):
    say(name)
    outcome(lambda: type(getattr(ray, name)(*arguments)).__name__)
    say(ray.is_initialized())
    if ray.is_initialized():
        ray.shutdown()


@program(alone=True)
def questions_without_a_session():
    asks("nodes")
    asks("cluster_resources")
    asks("available_resources")
    asks("timeline")
    asks("get_gpu_ids")


@program(alone=True)
def more_questions_without_a_session():
    asks("get_actor", "nobody")
    asks("get", [])
    asks("wait", [])
    asks("get", 5)


@program(alone=True)
def what_is_left_of_a_session():
    start()
    ref = one.remote()
    ray.get(ref)

    @ray.remote
    class A:
        def ping(self):
            return "pong"

    a = A.remote()
    ray.get(a.ping.remote())
    ray.shutdown()
    start()
    outcome(a.ping.remote)
    say(ray.get(one.remote()))


@program(alone=True)
def functions_live_on():
    @ray.remote
    def f(x):
        return x + 1

    @ray.remote
    class A:
        def ping(self):
            return "pong"

    for _ in range(3):
        start()
        say(ray.get(f.remote(1)), ray.get(A.remote().ping.remote()))
        ray.shutdown()


@program(alone=True)
def namespaces():
    start(namespace="mine")
    say(ray.get_runtime_context().namespace)
    ray.shutdown()
    start()
    first = ray.get_runtime_context().namespace
    say(len(first))
    ray.shutdown()
    start()
    say(ray.get_runtime_context().namespace != first)
    ray.shutdown()
    outcome(lambda: type(start(namespace="")).__name__)
    ray.shutdown()
    outcome(lambda: type(start(namespace=5)).__name__)


@program(alone=True)
def job_configurations():
    from ray.job_config import JobConfig

    variables = {"env_vars": {"PEER_JOB": "1"}}
    start(job_config=JobConfig(ray_namespace="configured", runtime_env=variables))

    @ray.remote
    def f():
        return os.environ.get("PEER_JOB"), ray.get_runtime_context().namespace

    say(ray.get(f.remote()))


@program(alone=True)
def init_in_a_task():
    start()

    @ray.remote
    def f():
        return ray.is_initialized(), type(ray.init(ignore_reinit_error=True)).__name__ != ""

    @ray.remote
    def g():
        ray.init()

    say(ray.get(f.remote()))
    outcome(ray.get, g.remote(), words=["Maybe you called ray.init twice by accident?"])


@program(alone=True)
def levels_of_logging():
    import logging

    for level in ("error", "INFO", logging.WARNING):
        outcome(lambda v=level: type(start(logging_level=v)).__name__ != "")
        ray.shutdown()
    outcome(lambda: type(start(logging_level="loud")).__name__ != "")
    ray.shutdown()
    outcome(lambda: ray.LoggingConfig(encoding="NOPE").encoding)
    outcome(lambda: ray.LoggingConfig(log_level="NOPE").log_level)
    outcome(lambda: ray.LoggingConfig().encoding)
    start(logging_config=ray.LoggingConfig(encoding="JSON", log_level="INFO"))
    say(ray.get(one.remote()))


@program(alone=True)
def positional_arguments():
    outcome(lambda: type(ray.init("local", 1)).__name__)
    ray.shutdown()
    outcome(lambda: type(ray.init("local", num_cpus=1, **QUIET)).__name__ != "")
    outcome(lambda: ray.shutdown(True))


@program(alone=True)
def the_node_of_a_session():
    start(num_cpus=2, resources={"slot": 1})
    (node,) = ray.nodes()
    say(sorted(node))
    say(node["Alive"], node["alive"], node["Resources"]["CPU"], node["Resources"]["slot"])
    say(node["NodeID"] == ray.get_runtime_context().get_node_id())
    say({name: type(value).__name__ for name, value in sorted(node.items())})
    say(node["NodeManagerAddress"] == ray.util.get_node_ip_address())


if __name__ == "__main__":
    main()
