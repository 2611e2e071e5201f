# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Search spaces and searchers of ray.tune, without experiments."""

import numpy as np
from program import main, outcome, program, say
from ray import tune
from ray.tune.search import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    Repeater,
    Searcher,
    create_searcher,
)
from ray.tune.search.sample import (
    Categorical,
    Domain,
    Float,
    Function,
    Integer,
    LogUniform,
    Normal,
    Quantized,
    Uniform,
)
from ray.tune.search.variant_generator import format_vars, generate_variants


def kind(domain):
    sampler = domain.get_sampler()
    inner = type(sampler.sampler).__bases__[0].__name__ if isinstance(sampler, Quantized) else ""
    return type(domain).__name__, type(sampler).__bases__[0].__name__, inner


@program
def kinds_of_domains():
    for domain in (
        tune.uniform(0, 1),
        tune.quniform(0, 1, 0.5),
        tune.loguniform(1, 2),
        tune.qloguniform(1, 2, 1),
        tune.randint(0, 3),
        tune.qrandint(0, 4, 2),
        tune.lograndint(1, 3),
        tune.qlograndint(2, 4, 2),
        tune.randn(),
        tune.qrandn(0, 1, 1),
        tune.choice([1]),
    ):
        say(*kind(domain), isinstance(domain, Domain))


@program
def bounds_of_domains():
    domain = tune.uniform(1, 2)
    say(domain.lower, domain.upper, domain.domain_str, domain.is_valid(1.5), domain.is_valid(3))
    domain = tune.randint(-3, 4)
    say(domain.lower, domain.upper, domain.domain_str, domain.is_valid(4), domain.is_valid(-4))
    domain = tune.choice(["a", "b"])
    say(domain.categories, len(domain), domain[1], domain.is_valid("c"), domain.domain_str)
    domain = tune.randn()
    say(domain.lower, domain.upper)


@program
def samplers_and_classes():
    say(
        issubclass(Float._Uniform, Uniform),
        issubclass(Float._LogUniform, LogUniform),
        issubclass(Float._Normal, Normal),
    )
    say(
        Float.default_sampler_cls is Float._Uniform, Integer.default_sampler_cls is Integer._Uniform
    )
    say(str(Float._Uniform()), str(Float._LogUniform()), str(Float._Normal(0, 1)))
    say(
        isinstance(tune.uniform(0, 1).get_sampler(), Float._Uniform),
        isinstance(tune.lograndint(1, 9).get_sampler(), Integer._LogUniform),
    )


@program
def types_of_samples():
    for domain in (
        tune.uniform(0, 1),
        tune.quniform(0, 1, 0.5),
        tune.randint(0, 5),
        tune.qrandint(0, 6, 3),
        tune.lograndint(1, 9),
        tune.randn(),
    ):
        say(
            type(domain.sample(random_state=1)).__name__,
            type(domain.sample(size=3, random_state=1)).__name__,
        )


@program
def samples_with_a_seed():
    for domain in (
        tune.uniform(0, 1),
        tune.quniform(0, 10, 0.5),
        tune.loguniform(1e-3, 1),
        tune.randint(0, 99),
        tune.choice("abcdef"),
        tune.randn(3, 2),
    ):
        say([domain.sample(random_state=seed) for seed in (1, 2, 3)])


@program
def samples_of_one_generator():
    generator = np.random.default_rng(5)
    say([tune.uniform(0, 1).sample(random_state=generator) for _ in range(3)])
    old = np.random.RandomState(5)
    say([tune.randint(0, 9).sample(random_state=old) for _ in range(5)])
    np.random.seed(3)
    say([tune.choice([1, 2, 3, 4]).sample() for _ in range(5)])


@program
def many_samples_at_once():
    say([float(x) for x in tune.uniform(0, 1).sample(size=3, random_state=1)])
    say(tune.choice(["a", "b"]).sample(size=4, random_state=1))
    say([int(x) for x in tune.qrandint(0, 20, 5).sample(size=4, random_state=1)])


@program
def bad_bounds():
    outcome(tune.loguniform, 0, 1, words=["LogUniform requires"])
    outcome(tune.loguniform, -1, 1, words=["LogUniform requires"])
    outcome(tune.lograndint, 0, 1, words=["LogUniform requires"])
    outcome(tune.quniform, 0.1, 1, 0.5)
    outcome(tune.quniform, 0, 1.1, 0.5)
    outcome(Float(None, 1).uniform, words=["Uniform requires a lower bound"])
    outcome(Float(0, None).uniform, words=["Uniform requires a upper bound"])


@program
def two_samplers():
    outcome(tune.uniform(0, 1).uniform)
    outcome(tune.uniform(1, 2).loguniform)
    outcome(tune.choice([1]).grid)


@program
def no_multiple_of_q():
    outcome(lambda: tune.qrandint(1, 2, 5).sample(random_state=1))
    outcome(lambda: tune.qrandint(1, 5, 5).sample(random_state=1))


@program
def sample_from_arguments():
    say(
        isinstance(tune.sample_from(lambda spec: 1), Function),
        tune.sample_from(lambda: 1).is_function(),
    )
    say(tune.sample_from(lambda: 3).sample(), tune.sample_from(lambda spec: spec).pass_config)
    outcome(tune.sample_from, lambda a, b: 1)
    say(tune.sample_from(lambda a, b=2: 1).pass_config, tune.uniform(0, 1).is_function())


@program
def grid_search_is_a_dict():
    say(tune.grid_search([1, 2]))
    say(Categorical([1]).grid().is_grid(), tune.choice([1]).is_grid())


def variants(space, **options):
    for resolved, config in generate_variants(
        space, random_state=np.random.default_rng(1), **options
    ):
        say(config, sorted(resolved.items()))


@program
def variants_of_a_grid():
    variants({"b": tune.grid_search([1, 2]), "a": tune.grid_search([3, 4, 5]), "c": 6})


@program
def variants_nested():
    variants(
        {
            "m": {"x": tune.grid_search([1, 2])},
            "l": [1, tune.grid_search([3, 4])],
            "t": (tune.grid_search([5]), 6),
        }
    )


@program
def variants_random():
    variants(
        {"a": tune.uniform(0, 1), "b": {"c": tune.randint(0, 9)}, "g": tune.grid_search([1, 2])}
    )
    variants({"a": tune.uniform(0, 1), "g": tune.grid_search([1, 2])}, constant_grid_search=True)


@program
def variants_that_depend():
    variants(
        {
            "config": {
                "b": tune.sample_from(lambda spec: spec.config.a + 1),
                "a": tune.grid_search([1, 2]),
            }
        }
    )
    outcome(
        list,
        generate_variants(
            {
                "config": {
                    "a": tune.sample_from(lambda spec: spec.config.b),
                    "b": tune.sample_from(lambda spec: spec.config.a),
                }
            }
        ),
    )
    outcome(list, generate_variants({"a": tune.sample_from(lambda spec: 1 / 0)}))


@program
def variants_of_nothing():
    variants({})
    variants({"a": 1, "b": {"c": [1, 2]}})


@program
def variants_leave_the_space_alone():
    space = {"a": tune.grid_search([{"k": [1]}, {"k": [2]}]), "b": {"c": [tune.uniform(0, 1)]}}
    for _, config in generate_variants(space, random_state=1):
        config["b"]["c"].append("changed")
        config["a"]["k"].append("changed")
    say(space["a"], len(space["b"]["c"]))


@program
def names_of_variables():
    say(format_vars({("a", "b"): 0.123456, ("c",): "x/y z", ("a", "a"): [1, 2], ("d",): None}))
    say(
        format_vars({}),
        format_vars({("x",): 1e-7}),
        format_vars({("x",): {"k": 1}}),
        format_vars({("x", 0): True}),
    )


class Counting(Searcher):
    def __init__(self, last=None, **kwargs):
        super().__init__(**kwargs)
        self.asked = 0
        self.told = []
        self.last = last

    def suggest(self, trial_id):
        if self.asked == self.last:
            return Searcher.FINISHED
        self.asked += 1
        return {"x": self.asked}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.told.append((trial_id, result, error))


@program
def searcher_arguments():
    for arguments in (
        {},
        {"metric": "m", "mode": "min"},
        {"metric": ["a", "b"], "mode": ["min", "max"]},
        {"mode": "other"},
    ):
        searcher = Counting(**arguments)
        say(searcher.metric, searcher.mode)
    outcome(Counting, metric="m", mode="other")
    outcome(Counting, metric=["a"], mode=["min", "max"])
    outcome(Counting, metric="m", mode=["min"])


@program
def searcher_defaults():
    searcher = Searcher()
    say(Searcher.FINISHED, Searcher.CKPT_FILE_TMPL)
    say(
        searcher.set_search_properties("m", "min", {}),
        searcher.set_max_concurrency(3),
        searcher.on_trial_result("t", {}),
    )
    for call in (
        lambda: searcher.suggest("t"),
        lambda: searcher.on_trial_complete("t"),
        lambda: searcher.save("/nowhere"),
        lambda: searcher.restore("/nowhere"),
        searcher.get_state,
        lambda: searcher.add_evaluated_point({}, 1),
    ):
        outcome(call)


@program
def limits_of_concurrency():
    inner = Counting(metric="m", mode="max")
    limiter = ConcurrencyLimiter(inner, max_concurrent=2)
    say(limiter.metric, limiter.mode, limiter.max_concurrent, limiter.batch)
    say(limiter.suggest("a"), limiter.suggest("b"), limiter.suggest("c"))
    limiter.on_trial_complete("a", {"m": 1})
    say(limiter.suggest("c"), inner.told, limiter.suggest("d"))
    limiter.on_trial_complete("nobody")
    limiter.on_trial_complete("b", error=True)
    say(inner.told, sorted(limiter.live_trials))


@program
def limits_in_batches():
    inner = Counting(metric="m", mode="max")
    limiter = ConcurrencyLimiter(inner, max_concurrent=2, batch=True)
    say(limiter.suggest("a"), limiter.suggest("b"))
    limiter.on_trial_complete("a", {"m": 1})
    say(limiter.suggest("c"), inner.told)
    limiter.on_trial_complete("b", {"m": 2})
    say(limiter.suggest("c"), inner.told)


@program
def limits_at_the_end():
    limiter = ConcurrencyLimiter(Counting(last=1), max_concurrent=5)
    say(limiter.suggest("a"), limiter.suggest("b"), sorted(limiter.live_trials))
    outcome(ConcurrencyLimiter, BasicVariantGenerator(), 2)
    outcome(ConcurrencyLimiter, Counting(), 0)


@program
def repetitions():
    inner = Counting(metric="m", mode="max")
    repeater = Repeater(inner, repeat=2)
    say(repeater.suggest("a"), repeater.suggest("b"), repeater.suggest("c"))
    repeater.on_trial_complete("a", {"m": 1})
    say(inner.told)
    repeater.on_trial_complete("b", {"m": 2})
    say(
        [
            (name, {k: float(v) for k, v in result.items()}, error)
            for name, result, error in inner.told
        ]
    )
    repeater.on_trial_complete("c", {"other": 1})
    say(repeater.suggest("d"), len(inner.told))
    repeater.on_trial_complete("d", {"m": 4})
    say([float(result["m"]) for _, result, _ in inner.told])


@program
def repetitions_without_index():
    repeater = Repeater(Counting(metric="m", mode="max", last=1), repeat=2, set_index=False)
    say(repeater.suggest("a"), repeater.suggest("b"), repeater.suggest("c"))


@program
def searchers_by_name():
    say(type(create_searcher("random", random_state=1, nonsense=2)).__name__)
    say(type(create_searcher("Variant_Generator", max_concurrent=2)).__name__)
    outcome(create_searcher, "nonsense", words=["must be one of"])


if __name__ == "__main__":
    main()
