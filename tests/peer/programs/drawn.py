# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Options and arguments drawn at random, right and wrong ones, from the seed in a program's name:
what is said is where each is taken or refused: where it is decorated, given by options(), called, or
waited for. Programs draw from the same lists on both sides."""

import random

import ray
from program import kinds, main, program, say
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

SEEDS = 60
GET_S = 10  # How long a result may take; what cannot run here is given up sooner.

COMMON = {
    "num_cpus": [0, 1, 0.5, 2, -1, "1", None, [1], 0.00001, True],
    "num_gpus": [0, None, -1, "1", [1], 0.0],
    "memory": [None, 0, 1000, 10**6, -1, "1", 1.5],
    "resources": [{}, None, {"x": -1}, {"CPU": 1}, {"GPU": 1}, {1: 1}, [1], "x", {"x": "1"}],
    "runtime_env": [{}, None, {"env_vars": {"A": "b"}}, {"env_vars": {"A": 1}}, {"env_vars": 3}, 7],
    "scheduling_strategy": ["DEFAULT", "SPREAD", None, "spread", "", 3, "PACK", []],
    "label_selector": [None, {}, {"a": 1}, {1: "a"}, [], "a", {"a": ""}],
    "name": ["drawn", None, 3, b"x"],
    "enable_task_events": [True, False],
    "unknown_option": [1, None],
    "num_cpu": [1],
}
TASK = {
    **COMMON,
    "num_returns": [1, 0, 2, 3, -1, -3, "streaming", "dynamic", "x", None, 1.5, True],
    "max_retries": [0, 1, -1, -2, None, "1", 1.5],
    "retry_exceptions": [True, False, None, [ValueError], [1], "x", ValueError, [], 3],
    "max_calls": [0, 1, None, -1, "1"],
    "_generator_backpressure_num_objects": [None, 1, -1, 0, -2, "x"],
    "max_restarts": [1],
    "max_concurrency": [1],
}
ACTOR = {
    **COMMON,
    "max_restarts": [0, 1, -1, -2, None, "1", 1.5],
    "max_task_retries": [0, 1, -1, -2, None, "1"],
    "max_concurrency": [1, 2, 0, -1, None, "1", 1.5],
    "max_pending_calls": [-1, 1, 0, -2, None, "1"],
    "lifetime": [None, "non_detached", "x", 3, ""],
    "namespace": [None, "space", 3],
    "get_if_exists": [False, None, 3],
    "concurrency_groups": [None, {"io": 1}, {"io": 0}, {"io": -1}, {"io": "x"}, [], {}, 3],
    "allow_out_of_order_execution": [None, False, 3],
    "num_returns": [1],
    "max_retries": [1],
    "max_calls": [1],
}
METHOD = {
    "num_returns": [1, 0, 2, -1, "streaming", "dynamic", "x", None, 1.5],
    "max_task_retries": [0, 1, -1, -2, None, "1"],
    "retry_exceptions": [True, False, [ValueError], [1], "x", None, 3],
    "concurrency_group": [None, "none_of_these", 3],
    "enable_task_events": [True, False],
    "name": ["drawn", None, 3],
    "num_cpus": [1],
    "unknown_option": [1],
}
BUNDLES = [
    [{"CPU": 1}],
    [{"CPU": 1}, {"CPU": 1}],
    [{"CPU": 0.5}],
    [],
    [{}],
    {},
    {"CPU": 1},
    [{"CPU": 0}],
    [{"CPU": -1}],
    [{"CPU": "1"}],
    [{1: 1}],
    [1],
    "CPU",
    None,
    [{"CPU": 1, "x": 0}],
]
GROUP = {
    "strategy": ["PACK", "SPREAD", "STRICT_PACK", "pack", "", 3],
    "name": ["", "drawn_group", None, 3],
    "lifetime": [None, "x", 3],
    "bundle_label_selector": [None, [], [{}], [{"a": 1}], {}, "x"],
    "_soft_target_node_id": [None, "x", 3],
}
GET = {"timeout": [None, 0.0, 5, -1, -0.5, "1", [], 1e9]}
WAIT = {
    "num_returns": [1, 2, 3, 0, -1, "1", 1.5, None],
    "timeout": [None, 5, 0.5, -1, "1"],
    "fetch_local": [True, False, 1],
}
STRANGE_REFS = [None, 3, "x", {}, (), [], [3], [None], object, [[]], lambda: 1]


def draw(rng, options, most):
    """A few options with values; two of three values are the first ones of their lists, which are
    right more often."""
    names = rng.sample(sorted(options), rng.randint(0, most))
    found = {
        name: rng.choice(options[name][:2] if rng.random() < 0.66 else options[name])
        for name in names
    }
    if found.get("name") == "drawn":  # Of no other program: the name of an actor stays a while.
        found["name"] = f"drawn_{rng.getrandbits(60)}"
    return found


def tried(words, call):
    """What `call()` returns, or None where it raises; says which."""
    try:
        value = call()
    except Exception as error:
        say(f"{words}: raises {kinds(error)}")
        return None
    say(f"{words}: fine")
    return value


def fetched(words, ref, rng):
    """Says what getting a result gives, whatever form it has."""
    try:
        if isinstance(ref, ray.ObjectRefGenerator):
            value = [ray.get(item, timeout=GET_S) for item in ref]
        else:
            value = ray.get(ref, timeout=GET_S)
            if type(value).__name__ == "DynamicObjectRefGenerator":
                value = [ray.get(item, timeout=GET_S) for item in value]
    except Exception as error:
        say(f"{words}: raises {kinds(error)}")
        return
    say(f"{words}: {value!r}")


def task(rng):
    given = draw(rng, TASK, 3)
    say("task", {name: given[name] for name in sorted(given)})

    def function(a, b=2):
        return [a, b]

    def generator(a, b=2):
        yield a
        yield b

    plain = rng.choice([function, function, generator])
    say(plain.__name__)
    made = tried("decorated", lambda: ray.remote(**given)(plain) if given else ray.remote(plain))
    if made is None:
        return
    more = draw(rng, TASK, 2)
    if more:
        say("options", {name: more[name] for name in sorted(more)})
        made = tried("options()", lambda: made.options(**more))
        if made is None:
            return
    args, kwargs = rng.choice(
        [((1,), {}), ((1, 3), {}), ((1,), {"b": 4}), ((), {}), ((1, 2, 3), {}), ((1,), {"c": 1})]
    )
    say("called with", args, kwargs)
    ref = tried("remote()", lambda: made.remote(*args, **kwargs))
    if ref is not None:
        fetched("get()", ref, rng)


def actor(rng):
    given = draw(rng, ACTOR, 3)
    on_method = draw(rng, METHOD, 1)
    say("actor", {name: given[name] for name in sorted(given)})

    class Plain:
        def __init__(self, a=1):
            self.a = a

        def method(self, b):
            return [self.a, b]

    if on_method:
        say("method", on_method)
        marked = tried("method()", lambda: ray.method(**on_method)(Plain.method))
        if marked is None:
            return
        Plain.method = marked
    made = tried("decorated", lambda: ray.remote(**given)(Plain) if given else ray.remote(Plain))
    if made is None:
        return
    more = draw(rng, ACTOR, 2)
    if more:
        say("options", {name: more[name] for name in sorted(more)})
        made = tried("options()", lambda: made.options(**more))
        if made is None:
            return
    args = rng.choice([(), (), (2,), (1, 2)])
    say("made with", args)
    handle = tried("remote()", lambda: made.remote(*args))
    if handle is None:
        return
    of_call = draw(rng, METHOD, 1)
    method = handle.method
    if of_call:
        say("options of the call", of_call)
        method = tried("options() of the method", lambda: method.options(**of_call))
    if method is not None:
        ref = tried("remote() of the method", lambda: method.remote(5))
        if ref is not None:
            fetched("get()", ref, rng)
    ray.kill(handle)


def objects(rng):
    ref = ray.put(1)
    refs = [ray.put(2), ray.put(3)]
    for _ in range(3):
        given = draw(rng, GET, 1)
        what = rng.choice([ref, refs, *STRANGE_REFS]) if rng.random() < 0.5 else ref
        words = "a ref" if what is ref else "refs" if what is refs else repr(what)[:12]
        say("get", words, given)
        value = tried("get()", lambda: ray.get(what, **given))
        say(value if isinstance(value, (int, list)) else "nothing")
    for _ in range(3):
        given = draw(rng, WAIT, 2)
        lists = [refs, refs, [refs[0]], [refs[0], refs[0]], [], ref, (refs[0],), [3], None]
        index = rng.randrange(len(lists))
        say("wait", index, given)
        value = tried("wait()", lambda: ray.wait(lists[index], **given))
        if value is not None:
            say([len(part) for part in value])
    if rng.random() < 0.5:
        strange = rng.choice(STRANGE_REFS)
        tried("cancel()", lambda: ray.cancel(strange))
        tried("kill()", lambda: ray.kill(strange))
        tried("get_actor()", lambda: ray.get_actor(strange))


def group(rng):
    bundles = rng.choice(BUNDLES[:3] if rng.random() < 0.6 else BUNDLES)
    given = draw(rng, GROUP, 2)
    say("group", bundles, given)
    made = tried("placement_group()", lambda: placement_group(bundles, **given))
    if made is None:
        return
    say("wait()", tried("wait", lambda: made.wait(GET_S)))
    index = rng.choice([-1, 0, 1, 5, -2, "0", None])
    capture = rng.choice([None, True, False])
    say("index", index, "capture", capture)

    @ray.remote(num_cpus=rng.choice([0, 0.5, 1]))
    def inside():
        return ray.util.get_current_placement_group() is not None

    made_strategy = tried(
        "strategy",
        lambda: PlacementGroupSchedulingStrategy(
            made, placement_group_bundle_index=index, placement_group_capture_child_tasks=capture
        ),
    )
    if made_strategy is not None:
        placed = tried("options()", lambda: inside.options(scheduling_strategy=made_strategy))
        ref = placed and tried("remote()", lambda: placed.remote())
        if ref is not None:
            fetched("get()", ref, rng)
    remove_placement_group(made)


def strategy(rng):
    node = ray.get_runtime_context().get_node_id()
    nodes = {"here": node, "nowhere": "0" * 56, "short": "ab", "none": None, "number": 3}
    which = rng.choice(["here", "here", *nodes])
    soft = rng.choice([True, False, None, 1])
    hard = rng.choice([{}, None, {"a": 3}, [], "x"])
    say("affinity", which, soft, "labels", hard)

    @ray.remote(num_cpus=0)
    def placed():
        return "ran"

    made = tried("affinity", lambda: NodeAffinitySchedulingStrategy(nodes[which], soft))
    if made is not None and (which != "nowhere" or soft):
        chosen = tried("options()", lambda: placed.options(scheduling_strategy=made))
        ref = chosen and tried("remote()", lambda: chosen.remote())
        if ref is not None:
            fetched("get()", ref, rng)
    tried("labels", lambda: NodeLabelSchedulingStrategy(hard))


DRAWS = [task, task, task, actor, actor, actor, objects, group, strategy]


def _make(seed):
    def drawn():
        rng = random.Random(seed)
        DRAWS[seed % len(DRAWS)](rng)

    drawn.__name__ = f"seed_{seed:04}"
    program(drawn)


for _seed in range(1, SEEDS + 1):
    _make(_seed)

if __name__ == "__main__":
    main()
