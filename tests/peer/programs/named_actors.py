# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Actors found by name: get_actor, namespaces, get_if_exists, detached ones."""

import threading

import ray
from program import eventually, main, outcome, program, say
from ray.util import list_named_actors


@ray.remote(num_cpus=0)
class Store:
    def __init__(self, value=0):
        self.value = value

    def set(self, value):
        self.value = value

    def get(self):
        return self.value


def is_gone(name, namespace=None):
    try:
        ray.get_actor(name, namespace=namespace)
    except ValueError:
        return True
    return False


@program
def found_by_name():
    made = Store.options(name="found").remote(5)
    found = ray.get_actor("found")
    say(found == made, ray.get(found.get.remote()), type(found).__name__)
    ray.get(found.set.remote(6))
    say(ray.get(made.get.remote()), repr(found) == repr(made))
    outcome(getattr, found, "nothing", words=["has no attribute 'nothing'"])


@program
def names_nobody_has():
    error = outcome(ray.get_actor, "nobody", words=["Failed to look up actor", "nobody"])
    say("'nobody'" in str(error))
    outcome(ray.get_actor, "")
    outcome(ray.get_actor, None)
    outcome(ray.get_actor)
    outcome(ray.get_actor, "nobody", namespace="elsewhere", words=["Failed to look up actor"])


@program
def names_of_wrong_types():
    outcome(ray.get_actor, 5)
    outcome(ray.get_actor, "x", namespace=5)
    outcome(ray.get_actor, "x", namespace="")
    outcome(ray.get_actor, "x", "elsewhere", words=["Failed to look up actor"])


@program
def a_name_is_taken():
    first = Store.options(name="taken").remote()
    error = outcome(Store.options(name="taken").remote, words=["already taken", "taken"])
    say(isinstance(error, ray.exceptions.ActorAlreadyExistsError))
    say(ray.get(first.get.remote()))
    other = Store.options(name="taken", namespace="other").remote(9)
    say(ray.get(other.get.remote()))


@program
def get_if_exists():
    make = Store.options(name="shared", get_if_exists=True)
    a = make.remote(1)
    b = make.remote(2)
    say(a == b, ray.get(b.get.remote()))
    outcome(Store.options(name="shared").remote, words=["already taken"])
    del a, b
    say(eventually(lambda: is_gone("shared")))
    say(ray.get(make.remote(3).get.remote()))


@program
def get_if_exists_from_many_threads():
    got = []
    make = Store.options(name="raced", get_if_exists=True)
    threads = [threading.Thread(target=lambda: got.append(make.remote())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(len(got), len(set(got)), ray.get([h.get.remote() for h in got]))


@program
def get_if_exists_from_tasks():
    @ray.remote(num_cpus=0)
    def make(value):
        handle = Store.options(name="from tasks", get_if_exists=True, lifetime="detached").remote(
            value
        )
        return handle._actor_id.hex()

    say(len(set(ray.get([make.remote(k) for k in range(5)]))))
    ray.kill(ray.get_actor("from tasks"))


@program
def a_name_is_free_after_death():
    first = Store.options(name="mortal").remote(1)
    say(ray.get(first.get.remote()))
    ray.kill(first)
    say(eventually(lambda: is_gone("mortal")))
    again = Store.options(name="mortal").remote(2)
    say(ray.get(ray.get_actor("mortal").get.remote()), again == first)


@program
def killed_and_asked_for_at_once():
    first = Store.options(name="at once").remote(1)
    ray.get(first.get.remote())
    ray.kill(first)
    outcome(ray.get_actor, "at once", words=["Failed to look up actor"])


@program
def a_name_goes_with_the_last_handle():
    handle = Store.options(name="counted").remote(1)
    found = ray.get_actor("counted")
    say(ray.get(found.get.remote()))
    del handle
    say(ray.get(ray.get_actor("counted").get.remote()))
    del found
    say(eventually(lambda: is_gone("counted")))


@program
def detached_actors_stay():
    handle = Store.options(name="stays", lifetime="detached").remote(7)
    ray.get(handle.get.remote())
    del handle
    say(ray.get(ray.get_actor("stays").get.remote()))
    ray.kill(ray.get_actor("stays"))
    say(eventually(lambda: is_gone("stays")))


@program
def detached_without_a_name():
    handle = Store.options(lifetime="detached").remote(1)
    say(ray.get(handle.get.remote()))
    ray.kill(handle)


@program
def detached_made_in_a_task():
    @ray.remote(num_cpus=0)
    def make():
        Store.options(name="of a task", lifetime="detached").remote(3)

    ray.get(make.remote())
    say(ray.get(ray.get_actor("of a task").get.remote()))
    ray.kill(ray.get_actor("of a task"))


@program
def namespaces_keep_names_apart():
    here = Store.options(name="both").remote("here")
    there = Store.options(name="both", namespace="there").remote("there")
    say(ray.get(ray.get_actor("both").get.remote()))
    say(ray.get(ray.get_actor("both", namespace="there").get.remote()))
    say(ray.get(ray.get_actor("both", "there").get.remote()))
    say(here == there)
    outcome(ray.get_actor, "both", namespace="nowhere")


@program
def listing_names():
    a = Store.options(name="listed a").remote()
    b = Store.options(name="listed b", namespace="lists").remote()
    ray.get([a.get.remote(), b.get.remote()])
    say([n for n in sorted(list_named_actors()) if n.startswith("listed")])
    rows = [r for r in list_named_actors(all_namespaces=True) if r["name"].startswith("listed")]
    say(sorted(r["name"] for r in rows), sorted(rows[0]))
    say([r["namespace"] for r in rows if r["name"] == "listed b"])
    ray.kill(a)
    say(eventually(lambda: "listed a" not in list_named_actors()))


@program
def failed_constructors_free_the_name():
    @ray.remote(num_cpus=0)
    class Fails:
        def __init__(self):
            raise RuntimeError("never")

        def f(self):
            return 1

    handle = Fails.options(name="fails").remote()
    error = outcome(ray.get, handle.f.remote(), words=["never"])
    say(error.actor_init_failed)
    del handle
    say(eventually(lambda: is_gone("fails"), 5))


@program
def odd_names():
    for name in ("with space", "ünïcode 名", "a/b:c", "x" * 200):
        handle = Store.options(name=name).remote(len(name))
        say(
            ray.get(ray.get_actor(name).get.remote()),
            name in list_named_actors(),
            handle is not None,
        )


@program
def own_name_and_namespace():
    @ray.remote(num_cpus=0)
    class Knows:
        def names(self):
            context = ray.get_runtime_context()
            return context.get_actor_name(), context.namespace == "apart"

    named = Knows.options(name="knows", namespace="apart").remote()
    unnamed = Knows.remote()
    say(ray.get(named.names.remote())[0], ray.get(unnamed.names.remote()))


@program
def names_in_a_task_are_those_of_the_driver():
    keep = Store.options(name="of the driver").remote(8)

    @ray.remote(num_cpus=0)
    def look():
        return ray.get(ray.get_actor("of the driver").get.remote())

    say(ray.get(look.remote()), keep is not None)


@program(alone=True)
def namespace_of_the_driver():
    ray.init(num_cpus=1, namespace="mine", log_to_driver=False)
    handle = Store.options(name="one").remote(1)
    say(ray.get_runtime_context().namespace)
    say(ray.get(ray.get_actor("one", namespace="mine").get.remote()), handle is not None)
    say(list_named_actors(), list_named_actors(all_namespaces=True))


@program(alone=True)
def wrong_namespaces_of_the_driver():
    outcome(lambda: ray.init(num_cpus=1, namespace=5, log_to_driver=False))
    outcome(lambda: ray.init(num_cpus=1, namespace="", log_to_driver=False))


@program(alone=True)
def a_namespace_nobody_named():
    ray.init(num_cpus=1, log_to_driver=False)
    own = ray.get_runtime_context().namespace
    handle = Store.options(name="one").remote(1)
    say(type(own).__name__, ray.get_actor("one", namespace=own) == handle)


if __name__ == "__main__":
    main()
