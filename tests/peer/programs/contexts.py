# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The runtime context: what drivers, tasks and actors read of themselves."""

import asyncio
import threading

import ray
from program import eventually, main, outcome, program, say


def context():
    return ray.get_runtime_context()


def shape(id):
    """The kind of an id, and how long it is."""
    if id is None:
        return None
    text = id if isinstance(id, str) else id.hex()
    return type(id).__name__, len(text), all(c in "0123456789abcdef" for c in text)


@program
def ids_of_the_driver():
    here = context()
    say(shape(here.get_job_id()), shape(here.get_node_id()), shape(here.get_worker_id()))
    say(here.get_task_id(), here.get_actor_id(), here.get_placement_group_id())
    say(here.get_task_name(), here.get_task_function_name(), here.get_actor_name())
    say(here.get_job_id() == context().get_job_id(), here.get_worker_id() == here.get_worker_id())
    say(here.get_node_id() == ray.nodes()[0]["NodeID"])
    say(context() is here)


@program
def ids_of_a_task():
    @ray.remote
    def ids():
        here = context()
        return (
            here.get_job_id(),
            here.get_node_id(),
            here.get_worker_id(),
            here.get_task_id(),
            here.get_actor_id(),
            here.get_actor_name(),
        )

    ref = ids.remote()
    job, node, worker, task, actor, name = ray.get(ref)
    say(job == context().get_job_id(), node == context().get_node_id())
    say(worker != context().get_worker_id(), shape(worker), shape(task), actor, name)
    say(task == ref.task_id().hex(), ref.hex().startswith(task))
    say(task != ray.get(ids.remote())[3])


@program
def ids_of_an_actor():
    @ray.remote
    class A:
        def __init__(self):
            self.made = context().get_actor_id(), context().get_task_id()

        def ids(self):
            here = context()
            return self.made, here.get_actor_id(), here.get_task_id(), here.get_actor_name()

    a = A.remote()
    (made, making), actor, task, name = ray.get(a.ids.remote())
    say(shape(actor), made == actor, a._actor_id.hex() == actor, repr(name))
    say(shape(making), shape(task), making != task)
    named = A.options(name="context_named").remote()
    say(ray.get(named.ids.remote())[3])
    say(actor.endswith(context().get_job_id()))


@program
def names_of_tasks():
    @ray.remote
    def f():
        return context().get_task_name(), context().get_task_function_name().split(".")[-1]

    @ray.remote
    class A:
        def method(self):
            here = context()
            return here.get_task_name(), here.get_task_function_name().split(".")[-2:]

    say([part.split(".")[-1] for part in ray.get(f.remote())])
    say(ray.get(f.options(name="given").remote()))
    a = A.remote()
    name, function = ray.get(a.method.remote())
    say(name.split(".")[-2:], function)
    say(ray.get(a.method.options(name="called").remote()))


@ray.remote
def module_level():
    here = context()
    return here.get_task_name(), here.get_task_function_name()


@ray.remote
class ModuleLevel:
    def method(self):
        here = context()
        return here.get_task_name(), here.get_task_function_name()

    async def coroutine(self):
        here = context()
        return here.get_task_name(), here.get_task_function_name()


@program
def names_with_modules():
    say(ray.get(module_level.remote()))
    say(ray.get(module_level.options(name="given").remote()))
    actor = ModuleLevel.remote()
    say(ray.get(actor.method.remote()))
    say(ray.get(actor.coroutine.remote()))
    say(ray.get(actor.method.options(name="given").remote()))


@program
def async_actors():
    @ray.remote
    class A:
        async def ids(self, pause):
            before = context().get_task_id()
            await asyncio.sleep(pause)
            here = context()
            return before == here.get_task_id(), here.get_task_id(), here.get_actor_id()

    a = A.remote()
    refs = [a.ids.remote(0.2), a.ids.remote(0.1)]
    (same, first, actor), (same_too, second, _) = ray.get(refs)
    say(same, same_too, first != second, actor == a._actor_id.hex())
    say(first == refs[0].task_id().hex(), second == refs[1].task_id().hex())


@program
def threads_of_a_task():
    @ray.remote
    def f():
        found = []
        here = context()

        def look():
            found.append((here.get_job_id(), here.get_node_id(), here.get_actor_id()))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return found[0] == (here.get_job_id(), here.get_node_id(), None)

    say(ray.get(f.remote()))


@program
def the_current_actor():
    @ray.remote
    class A:
        def me(self):
            return context().current_actor

        def ping(self):
            return "pong"

        def calls_itself_later(self):
            return [context().current_actor.ping.remote()]

    a = A.remote()
    me = ray.get(a.me.remote())
    say(me == a, ray.get(me.ping.remote()), me._actor_id == a._actor_id)
    say(ray.get(ray.get(a.calls_itself_later.remote())[0]))
    outcome(lambda: context().current_actor, words=["only available in an actor"])

    @ray.remote
    def f():
        return context().current_actor

    outcome(ray.get, f.remote(), words=["only available in an actor"])


@program
def restarts_are_told():
    @ray.remote(max_restarts=1)
    class A:
        def told(self):
            return bool(context().was_current_actor_reconstructed)

        def die(self):
            import os

            os._exit(1)

    a = A.remote()
    say(ray.get(a.told.remote()))
    try:
        ray.get(a.die.remote())
    except ray.exceptions.RayActorError:
        pass

    def restarted():
        try:
            return ray.get(a.told.remote())
        except ray.exceptions.RayActorError:
            return False

    say(eventually(restarted))
    outcome(lambda: context().was_current_actor_reconstructed)

    @ray.remote
    def f():
        return context().was_current_actor_reconstructed

    outcome(ray.get, f.remote())


@program
def assigned_resources():
    outcome(context().get_assigned_resources, words=["only available when the process is a"])

    @ray.remote(num_cpus=2)
    def f():
        return context().get_assigned_resources()

    say(ray.get(f.remote()))

    @ray.remote
    class A:
        def assigned(self):
            return context().get_assigned_resources()

        async def awaits(self):
            return context().get_assigned_resources()

    say(ray.get(A.remote().assigned.remote()))
    say(ray.get(A.options(num_cpus=1).remote().awaits.remote()))


@program
def cancelled_or_not():
    outcome(context().is_canceled, words=["only available when the process is a worker"])

    @ray.remote
    def f():
        return context().is_canceled()

    say(ray.get(f.remote()))

    @ray.remote
    class A:
        def told(self):
            return context().is_canceled()

    @ray.remote
    class B:
        async def told(self):
            return context().is_canceled()

    say(ray.get(A.remote().told.remote()))
    outcome(ray.get, B.remote().told.remote(), words=["not supported in an async actor"])


@program
def sessions_are_named():
    here = context()
    say(here.get_session_name().split("_")[0], type(here.get_temp_dir()).__name__)

    @ray.remote
    def f():
        return context().get_session_name(), context().get_temp_dir()

    say(ray.get(f.remote()) == (here.get_session_name(), here.get_temp_dir()))


@program
def namespaces_are_told():
    @ray.remote
    def f():
        return context().namespace

    say(ray.get(f.remote()) == context().namespace, type(context().namespace).__name__)
    say(context().namespace != "")


@program(alone=True)
def namespaces_of_init():
    ray.init(num_cpus=1, namespace="peers", include_dashboard=False, log_to_driver=False)

    @ray.remote
    class A:
        def told(self):
            return context().namespace

    say(context().namespace, ray.get(A.remote().told.remote()))
    other = A.options(namespace="others", name="a").remote()
    say(ray.get(other.told.remote()))


@program
def deprecated_ids():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = context()
        say(type(here.job_id).__name__, type(here.node_id).__name__)
        outcome(lambda: here.task_id)
        outcome(lambda: here.actor_id)
        say(sorted(here.get()))

        @ray.remote
        def f():
            inside = context()
            kinds = type(inside.task_id).__name__, inside.actor_id, sorted(inside.get())
            return kinds, inside.task_id.hex() == inside.get_task_id()

        say(ray.get(f.remote()))

        @ray.remote
        class A:
            def f(self):
                inside = context()
                return type(inside.actor_id).__name__, sorted(inside.get())

        say(ray.get(A.remote().f.remote()))


@program(alone=True)
def without_a_session():
    here = context()
    words = ["has not been initialized"]
    outcome(here.get_job_id, words=words)
    outcome(here.get_node_id, words=words)
    outcome(here.get_worker_id, words=words)
    outcome(here.get_session_name, words=words)
    outcome(here.get_task_id)
    outcome(here.get_actor_id)
    outcome(lambda: here.namespace)
    outcome(here.get_node_labels)
    outcome(here.get_temp_dir, words=words)
    say(ray.is_initialized())


@program
def attempts_are_counted():
    @ray.remote(max_retries=2, retry_exceptions=True)
    def f(name):
        here = context()
        if here.get_task_id() and not ray.get(ray.get_actor(name).next.remote()) > 2:
            raise ValueError
        return here.get_task_id()

    @ray.remote
    class Counter:
        count = 0

        def next(self):
            self.count += 1
            return self.count

    counter = Counter.options(name="attempts", num_cpus=0).remote()
    ray.get(counter.next.remote())
    ref = f.remote("attempts")
    say(ray.get(ref) == ref.task_id().hex(), ray.get(counter.next.remote()))


@program
def the_gcs_address():
    say(type(context().gcs_address).__name__, ":" in context().gcs_address)

    @ray.remote
    def f():
        return context().gcs_address

    say(ray.get(f.remote()) == context().gcs_address)


if __name__ == "__main__":
    main()
