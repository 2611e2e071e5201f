# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where and when calls run: amounts of resources, waiting parents, accelerators."""

import os

import ray
from program import eventually, main, outcome, program, say


def all_free():
    return eventually(lambda: ray.available_resources().get("CPU") == 4)


@ray.remote
def assigned():
    return ray.get_runtime_context().get_assigned_resources()


@program
def assigned_to_tasks():
    say(ray.get(assigned.remote()))
    say(ray.get(assigned.options(num_cpus=0.5).remote()))
    say(ray.get(assigned.options(num_cpus=2).remote()))
    say(ray.get(assigned.options(num_cpus=0).remote()))
    say(ray.get(assigned.options(memory=1024).remote()))
    say(ray.get(assigned.options(num_cpus=0.0001).remote()))


@program
def assigned_to_actors():
    @ray.remote
    class A:
        def assigned(self):
            return ray.get_runtime_context().get_assigned_resources()

    for options in ({}, {"num_cpus": 0.5}, {"memory": 1024}):
        a = A.options(**options).remote()
        say(options, ray.get(a.assigned.remote()))
        ray.kill(a)
    say(all_free())


@program
def fractions_add_up():
    @ray.remote
    class Meeting:
        def __init__(self):
            self.came = set()

        def come(self, who):
            self.came.add(who)
            return len(self.came)

        def count(self):
            return len(self.came)

    meeting = Meeting.options(num_cpus=0).remote()

    @ray.remote(num_cpus=0.5)
    def come(who):
        ray.get(meeting.come.remote(who))
        return eventually(lambda: ray.get(meeting.count.remote()) == 3, 30)

    say(ray.get([come.remote(k) for k in range(3)]))
    ray.kill(meeting)
    say(all_free())


@program
def wrong_amounts():
    def f():
        pass

    for options in (
        {"num_cpus": -1},
        {"num_cpus": "1"},
        {"num_gpus": -0.5},
        {"num_gpus": "1"},
        {"memory": -1},
        {"memory": "1"},
        {"memory": 1.5},
        {"memory": 0},
        {"resources": {"slot": -1}},
        {"resources": {"CPU": 1}},
        {"resources": {"GPU": 1}},
        {"resources": {"slot": "1"}},
        {"resources": ["slot"]},
        {"resources": {1: 1}},
        {"num_cpus": 1.23456},
        {"num_gpus": 1.5},
        {"resources": {"slot": 1.5}},
        {"resources": {"slot": 0}},
        {"num_cpus": None},
        {"resources": None},
    ):
        say(options)
        outcome(lambda o=options: type(ray.remote(**o)(f)).__name__)
        outcome(lambda o=options: type(ray.remote(f).options(**o)).__name__)


@program
def wrong_amounts_say_why():
    def f():
        pass

    outcome(lambda: ray.remote(num_cpus=-1)(f), words=["num_cpus"])
    outcome(
        lambda: ray.remote(resources={"CPU": 1})(f),
        words=["Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU'"],
    )
    outcome(lambda: ray.remote(resources={"slot": -1})(f), words=["slot"])


@program
def too_fine_amounts():
    def f():
        return 1

    outcome(lambda: ray.get(ray.remote(num_cpus=0.00001)(f).remote(), timeout=10))
    outcome(lambda: ray.get(ray.remote(num_gpus=0.00001)(f).remote(), timeout=10))
    outcome(lambda: type(ray.remote(num_cpus=1.5)(f).remote()).__name__)


@program
def infeasible_waits():
    ref = assigned.options(num_cpus=100).remote()
    ready, left = ray.wait([ref], timeout=0.3)
    say(len(ready), len(left))
    outcome(ray.get, ref, timeout=0.3)
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=10)
    other = assigned.options(resources={"nowhere": 1}).remote()
    say(len(ray.wait([other], timeout=0.3)[0]))
    ray.cancel(other)
    outcome(ray.get, other, timeout=10)
    gpu = assigned.options(num_gpus=1).remote()
    say(len(ray.wait([gpu], timeout=0.3)[0]))
    ray.cancel(gpu)
    outcome(ray.get, gpu, timeout=10)


@program
def infeasible_actors_wait():
    @ray.remote(num_cpus=100)
    class Big:
        def ping(self):
            return "pong"

    big = Big.remote()
    ref = big.ping.remote()
    say(len(ray.wait([ref], timeout=0.3)[0]))
    ray.kill(big)
    outcome(ray.get, ref, timeout=10)


@program
def blocked_parents_lend_their_cpus():
    @ray.remote
    def leaf():
        return 1

    @ray.remote
    def tree(depth):
        if depth == 0:
            return ray.get(leaf.remote())
        return sum(ray.get([tree.remote(depth - 1) for _ in range(2)]))

    say(ray.get(tree.remote(2), timeout=50))
    say(all_free())


@program
def parents_that_wait_lend_too():
    @ray.remote(num_cpus=4)
    def child():
        return 1

    @ray.remote(num_cpus=4)
    def parent():
        ready, _ = ray.wait([child.remote()], timeout=20)
        return len(ready)

    say(ray.get(parent.remote(), timeout=30))


@program
def available_while_running():
    @ray.remote
    class Gate:
        def __init__(self):
            self.open = False

        def set(self):
            self.open = True

        def get(self):
            return self.open

    gate = Gate.options(num_cpus=0).remote()

    @ray.remote(num_cpus=1.5)
    def holds():
        import time

        while not ray.get(gate.get.remote()):
            time.sleep(0.2)

    say(all_free())
    ref = holds.remote()
    say(eventually(lambda: ray.available_resources().get("CPU") == 2.5))
    say(ray.cluster_resources()["CPU"])
    ray.get(gate.set.remote())
    ray.get(ref)
    say(all_free())
    ray.kill(gate)


@program
def cpus_all_taken():
    @ray.remote(num_cpus=4)
    class All:
        def ping(self):
            return "pong"

    a = All.remote()
    ray.get(a.ping.remote())
    say(eventually(lambda: ray.available_resources().get("CPU", 0) == 0))
    say(ray.get(assigned.options(num_cpus=0).remote()))
    ref = assigned.remote()
    say(len(ray.wait([ref], timeout=0.3)[0]))
    ray.kill(a)
    say(ray.get(ref, timeout=20))
    say(all_free())


@program(alone=True)
def custom_resources():
    ray.init(
        num_cpus=2,
        resources={"slot": 2, "odd-name": 0.5},
        include_dashboard=False,
        log_to_driver=False,
    )
    total = ray.cluster_resources()
    say(total["slot"], total["odd-name"], total["CPU"])
    say(ray.get(assigned.options(resources={"slot": 1}).remote()))
    say(ray.get(assigned.options(resources={"slot": 0.5}, num_cpus=0).remote()))
    say(ray.get(assigned.options(resources={"odd-name": 0.5}).remote()))
    ref = assigned.options(resources={"slot": 3}).remote()
    say(len(ray.wait([ref], timeout=0.3)[0]))

    @ray.remote(resources={"slot": 1})
    class Holder:
        def assigned(self):
            return ray.get_runtime_context().get_assigned_resources()

    holder = Holder.remote()
    say(ray.get(holder.assigned.remote()))
    say(eventually(lambda: ray.available_resources().get("slot") == 1))


@program(alone=True)
def accelerators():
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)

    @ray.remote(num_gpus=1)
    def one():
        ids = ray.get_gpu_ids()
        return len(ids), os.environ.get("CUDA_VISIBLE_DEVICES") == ",".join(map(str, ids))

    @ray.remote(num_gpus=2)
    def two():
        ids = ray.get_runtime_context().get_accelerator_ids()
        return sorted(ids["GPU"]), sorted(ray.get_gpu_ids())

    @ray.remote
    def none():
        return ray.get_gpu_ids(), os.environ.get("CUDA_VISIBLE_DEVICES")

    say(ray.get(one.remote()))
    say(ray.get(two.remote()))
    say(ray.get(none.remote()))
    say(ray.get_gpu_ids())
    say(ray.cluster_resources()["GPU"])
    say(type(ray.get(one.options(num_gpus=0.5).remote())).__name__)
    say(ray.get(one.options(num_gpus=0.5).remote()))


@program(alone=True)
def actors_keep_their_accelerators():
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)

    @ray.remote(num_gpus=1)
    class Holder:
        def ids(self):
            return ray.get_gpu_ids()

        def assigned(self):
            return ray.get_runtime_context().get_assigned_resources()

    a, b = Holder.remote(), Holder.remote()
    ids = ray.get([a.ids.remote(), b.ids.remote()])
    say(sorted(sum(ids, [])), {type(i).__name__ for i in sum(ids, [])})
    say(ray.get(a.ids.remote()) == ids[0])
    say(ray.get(a.assigned.remote()))
    say(eventually(lambda: "GPU" not in ray.available_resources()))


@program
def kinds_of_accelerators():
    @ray.remote
    def ids():
        return ray.get_runtime_context().get_accelerator_ids()

    say(ray.get(ids.remote()))
    say(ray.get_gpu_ids())


@program
def threads_of_libraries():
    @ray.remote
    def threads():
        return os.environ.get("OMP_NUM_THREADS")

    say(ray.get(threads.remote()))
    say(ray.get(threads.options(num_cpus=2).remote()))
    say(ray.get(threads.options(num_cpus=3.5).remote()))
    say(ray.get(threads.options(num_cpus=0).remote()))
    say(ray.get(threads.options(num_cpus=0.5).remote()))
    variables = {"env_vars": {"OMP_NUM_THREADS": "7"}}
    say(ray.get(threads.options(runtime_env=variables).remote()))

    @ray.remote
    class A:
        def threads(self):
            return os.environ.get("OMP_NUM_THREADS")

    for options in ({}, {"num_cpus": 2}):
        a = A.options(**options).remote()
        say(options, ray.get(a.threads.remote()))
        ray.kill(a)
    say(all_free())


@program
def accelerator_types():
    def f():
        pass

    outcome(lambda: type(ray.remote(accelerator_type="A100")(f)).__name__)
    outcome(lambda: type(ray.remote(accelerator_type=5)(f)).__name__)
    ref = ray.remote(accelerator_type="NVIDIA-X", num_cpus=0)(f).remote()
    say(len(ray.wait([ref], timeout=0.3)[0]))
    ray.cancel(ref)
    outcome(ray.get, ref, timeout=10)


if __name__ == "__main__":
    main()
