# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""ray.util besides pools and queues: metrics, iteration, names, checks, collective helpers."""

import io
import threading

import ray
from program import eventually, main, outcome, program, say
from ray.util import metrics


@ray.remote
def square(x):
    if x == "bad":
        raise ValueError("bad")
    return x * x


@ray.remote
def after(seconds, x):
    import time

    time.sleep(seconds)
    return x


@program
def as_completed():
    refs = [square.remote(k) for k in range(4)]
    say(sorted(ray.util.as_completed(refs)))
    say(type(ray.util.as_completed(refs)).__name__)
    say(sorted(ray.util.as_completed(refs, chunk_size=2)))
    found = list(ray.util.as_completed(refs, yield_obj_refs=True))
    say(len(found), set(found) == set(refs))
    slow, fast = after.remote(0.6, "slow"), after.remote(0, "fast")
    say(list(ray.util.as_completed([slow, fast], chunk_size=1)))
    say(list(ray.util.as_completed([])))
    outcome(lambda: list(ray.util.as_completed([square.remote("bad")])))
    outcome(lambda: list(ray.util.as_completed([1])))


@program
def map_unordered():
    say(sorted(ray.util.map_unordered(square, range(5))))
    say(sorted(ray.util.map_unordered(square, range(5), backpressure_size=2)))
    say(sorted(ray.util.map_unordered(square, iter(range(3)), chunk_size=1)))
    refs = list(ray.util.map_unordered(square, range(3), yield_obj_refs=True))
    say(sorted(ray.get(refs)))
    say(list(ray.util.map_unordered(square, [])))
    outcome(lambda: list(ray.util.map_unordered(square, ["bad"])))
    outcome(lambda: list(ray.util.map_unordered(square, range(5), backpressure_size=0)))
    outcome(lambda: list(ray.util.map_unordered(square, range(20), backpressure_size=1)) != [])


@program
def counters():
    counter = metrics.Counter("peer_counter", description="counts", tag_keys=("kind",))
    say(counter.info)
    say(counter.inc(1, tags={"kind": "a"}))
    outcome(counter.inc, 0, tags={"kind": "a"}, words=["value must be >0"])
    outcome(counter.inc, -1, tags={"kind": "a"}, words=["value must be >0"])
    outcome(counter.inc, "1", tags={"kind": "a"}, words=["value must be int or float"])
    outcome(counter.inc, 1, words=["Missing value for tag key(s): kind"])
    outcome(counter.inc, 1, tags={"other": "a"}, words=["Missing value for tag key(s): kind"])
    outcome(counter.inc, 1, tags={"kind": 1})
    outcome(counter.inc, 1, tags={"kind": "a", "more": "b"}, words=["Unrecognized tag keys"])
    outcome(lambda: metrics.Counter("peer_plain").inc(2.5))


@program
def default_tags():
    gauge = metrics.Gauge("peer_gauge", tag_keys=("kind",))
    say(gauge.set_default_tags({"kind": "a"}) is gauge)
    say(gauge.set(1), gauge.set(-1.5), gauge.info)
    outcome(gauge.set, None)
    outcome(gauge.set, "1", words=["value must be int or float"])
    outcome(gauge.set_default_tags, {"other": "a"}, words=["Unrecognized tag key other"])
    outcome(gauge.set_default_tags, {"kind": 1}, words=["Tag values must be str"])


@program
def histograms():
    histogram = metrics.Histogram("peer_histogram", boundaries=[0.1, 1], tag_keys=("kind",))
    say(histogram.info)
    say(histogram.observe(0.5, tags={"kind": "a"}))
    outcome(histogram.observe, "1", tags={"kind": "a"})
    outcome(metrics.Histogram, "peer_h1", words=["boundaries"])
    outcome(metrics.Histogram, "peer_h2", boundaries=[])
    outcome(metrics.Histogram, "peer_h3", boundaries=[0, 1], words=["must be greater than 0"])
    outcome(metrics.Histogram, "peer_h4", boundaries=[-1, 1])
    outcome(lambda: metrics.Histogram("peer_h5", boundaries=[1, 2]).info)


@program
def names_of_metrics():
    for name in ("", "a-b", "1a", "a b", "_a", "a:b", None, 5):
        say(name)
        outcome(lambda n=name: type(metrics.Counter(n)).__name__)
    outcome(metrics.Counter, "peer_t", tag_keys="kind", words=["tag_keys should be a tuple"])
    outcome(lambda: type(metrics.Counter("peer_t2", tag_keys=["kind"])).__name__)
    outcome(metrics.Counter, "peer_t3", tag_keys=(1,), words=["Tag keys must be str"])
    outcome(lambda: type(metrics.Counter("peer_t4", description=None)).__name__)


@program
def metrics_travel():
    counter = metrics.Counter("peer_travels", tag_keys=("kind",))
    counter.set_default_tags({"kind": "a"})

    @ray.remote
    def count(counter):
        return counter.inc(1), counter.info["default_tags"]

    say(ray.get(count.remote(counter)))

    @ray.remote(num_cpus=0)
    class Counts:
        def __init__(self):
            self.counter = metrics.Counter("peer_in_an_actor")

        def count(self):
            return self.counter.inc()

    say(ray.get(Counts.remote().count.remote()))


@program
def log_once():
    say(ray.util.log_once("peer key"), ray.util.log_once("peer key"), ray.util.log_once("other"))
    from ray.util.debug import disable_log_once_globally, enable_periodic_logging

    disable_log_once_globally()
    say(ray.util.log_once("third"))
    enable_periodic_logging()
    say(ray.util.log_once("fourth"), ray.util.log_once("fourth"))


@program
def named_actors():
    @ray.remote(num_cpus=0)
    class A:
        def ping(self):
            return "pong"

    a = A.options(name="listed").remote()
    b = A.options(name="elsewhere", namespace="other").remote()
    ray.get([a.ping.remote(), b.ping.remote()])
    say(ray.util.list_named_actors())
    everywhere = ray.util.list_named_actors(all_namespaces=True)
    say(sorted(row["name"] for row in everywhere), sorted(everywhere[0]))
    say([row["namespace"] for row in everywhere if row["name"] == "elsewhere"])
    ray.kill(a)
    say(eventually(lambda: ray.util.list_named_actors() == []))


@program
def what_can_be_pickled():
    lock = threading.Lock()

    def holds():
        return lock

    out = io.StringIO()
    ok, failures = ray.util.inspect_serializability(holds, name="holds", print_file=out)
    say(ok, len(failures), sorted(type(f).__name__ for f in failures))
    say({f.name for f in failures}, {f.obj is lock for f in failures})
    text = out.getvalue()
    say("holds" in text, "lock" in text, "Checking Serializability of" in text)
    say("was found to be non-serializable" in text)
    say(ray.util.inspect_serializability(len, print_file=io.StringIO()))
    say(ray.util.inspect_serializability([1], name="list", print_file=io.StringIO()))


@program
def addresses_and_ids():
    address = ray.util.get_node_ip_address()
    say(type(address).__name__, address == ray.nodes()[0]["NodeManagerAddress"])
    from ray._private.services import get_node_ip_address

    say(type(get_node_ip_address()).__name__)


@program
def serializers():
    class Point:
        def __init__(self, x):
            self.x = x

        def __reduce__(self):
            raise TypeError("no pickling")

    outcome(ray.put, Point(1))
    ray.util.register_serializer(
        Point, serializer=lambda p: p.x, deserializer=lambda x: Point(x + 1)
    )
    say(ray.get(ray.put(Point(1))).x)
    ray.util.deregister_serializer(Point)
    outcome(ray.put, Point(1))
    outcome(ray.util.deregister_serializer, int)


@program
def names_of_util():
    for name in [
        "ActorPool",
        "as_completed",
        "connect",
        "deregister_serializer",
        "disconnect",
        "get_current_placement_group",
        "get_node_instance_id",
        "get_node_ip_address",
        "get_placement_group",
        "inspect_serializability",
        "list_named_actors",
        "log_once",
        "map_unordered",
        "pdb",
        "placement_group",
        "placement_group_table",
        "PublicAPI",
        "ray_debugpy",
        "register_serializer",
        "remove_placement_group",
        "accelerators",
        "iter",
    ]:
        if not hasattr(ray.util, name):
            say(name)
    say(sorted(n for n in dir(ray.util.accelerators) if n.startswith("NVIDIA"))[:3])
    outcome(lambda: ray.util.no_such_name)
    outcome(lambda: ray.no_such_name)
    outcome(lambda: ray.experimental.no_such_name)


@program
def progress_bars():
    from ray.experimental import tqdm_ray

    @ray.remote
    def f():
        bar = tqdm_ray.tqdm(total=3, desc="bar")
        for _ in range(3):
            bar.update(1)
        bar.close()
        return list(tqdm_ray.tqdm(range(3)))

    say(ray.get(f.remote()))
    say(list(tqdm_ray.tqdm([1, 2], desc="here")))


@program
def numbers_of_objects_and_waits():
    refs = [after.remote(0, k) for k in range(3)]
    ready, left = ray.wait(refs, num_returns=3, timeout=20)
    say(len(ready), len(left))
    say(ray.util.get_node_instance_id() is not None)


@program
def joblib_runs_here():
    try:
        import joblib
    except ImportError:
        say([1, 4, 9])
        return
    from ray.util.joblib import register_ray

    register_ray()
    with joblib.parallel_backend("ray"):
        say(joblib.Parallel(n_jobs=2)(joblib.delayed(pow)(k, 2) for k in (1, 2, 3)))


if __name__ == "__main__":
    main()
