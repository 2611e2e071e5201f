# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Search spaces, and what Ray makes of them: the configurations of grid and random search, and what
Optuna and HyperOpt suggest through its searchers.

    PYTHON_WITH_RAY tests/python/tune/space_traces.py      # writes traces/spaces.json.gz"""

import gzip
import itertools
import json
import math
import pathlib

RECORDED = pathlib.Path(__file__).parent / "traces" / "spaces.json.gz"


def simple(t):
    """One domain of each kind."""
    return {
        "uniform": t.uniform(-1, 2),
        "quniform": t.quniform(0, 10, 0.5),
        "loguniform": t.loguniform(1e-4, 1e-1),
        "qloguniform": t.qloguniform(0.5, 64, 0.5),
        "choice": t.choice(["a", "b", 3, None]),
        "randint": t.randint(-5, 5),
        "qrandint": t.qrandint(2, 30, 3),
        "qrandint_1": t.qrandint(2, 30),
        "qrandint_between": t.qrandint(1, 17, 4),
        "lograndint": t.lograndint(1, 1000),
        "qlograndint": t.qlograndint(4, 512, 4),
        "randn": t.randn(10, 2),
        "qrandn": t.qrandn(0, 3, 0.25),
        "uniform_wide": t.uniform(1e-9, 1e9),
        "choice_one": t.choice([7]),
        "choice_dicts": t.choice([{"k": 1}, {"k": 2}]),
    }


def _nested(t):
    return {
        "nested": {"a": {"b": t.uniform(0, 1), "c": t.grid_search([1, 2])}, "d": t.randint(0, 9)},
        "in_list": {"layers": [t.randint(1, 64), 3, t.uniform(0, 1)]},
        "in_tuple": {"betas": (t.uniform(0.8, 0.9), t.grid_search([0.99, 0.999]))},
        "list_in_list": {"m": [[t.randint(0, 3), t.grid_search([1, 2])], {"k": t.uniform(0, 1)}]},
        "grid": {"a": t.grid_search([1, 2, 3])},
        "grid_2": {"b": t.grid_search([1, 2, 3]), "a": t.grid_search(["x", "y"])},
        "grid_3": {
            "c": t.grid_search([0, 1]),
            "a": {"z": t.grid_search([0, 1]), "b": t.grid_search([0, 1])},
        },
        "grid_by_hand": {"a": {"grid_search": [4, 5]}, "b": t.uniform(0, 1)},
        "grid_of_dicts": {"a": t.grid_search([{"x": 1}, {"x": 2, "y": 3}])},
        "grid_of_domains": {
            "a": t.grid_search([t.uniform(0, 1), t.uniform(10, 11)]),
            "b": t.randint(0, 9),
        },
        "grid_in_grid": {"a": t.grid_search([t.grid_search([1, 2]), 3])},
        "choice_of_domains": {
            "a": t.choice([t.uniform(0, 1), t.randint(5, 9)]),
            "b": t.uniform(2, 3),
        },
        "choice_of_spaces": {"opt": t.choice([{"lr": t.uniform(0, 1)}, {"m": t.randint(0, 5)}])},
        "constants": {"a": 1, "b": [1, 2], "c": {"d": "e"}},
        "empty": {},
        "one_of_grid": {"a": t.grid_search([9]), "b": t.randn()},
        "mixed_names": {
            "B": t.grid_search([1, 2]),
            "a": t.grid_search([3, 4]),
            "_": t.uniform(0, 1),
        },
        "strings": {"a b": t.choice(["x/y", "p q", "ü"]), "c-d": t.grid_search(["s:t", "1.5"])},
        "floats": {"lr": t.grid_search([0.1, 1e-5, 2.0]), "big": t.uniform(1e5, 1e6)},
        "bools": {"flag": t.grid_search([True, False]), "none": t.grid_search([None])},
        "deep": {
            "a": {"b": {"c": {"d": t.uniform(0, 1), "e": [t.grid_search([1, 2]), t.randn()]}}}
        },
        "twice_the_grid": {"x": t.grid_search([1, 1]), "y": t.grid_search([[1, 2], [3]])},
        "lists_of_choices": {
            "k": [t.choice(["a", "b"]) for _ in range(4)],
            "s": t.choice([(1, 2), (3,)]),
        },
    }


def _dependent(t):
    return {
        "from_config": {"a": t.randint(1, 9), "b": t.sample_from(lambda spec: spec.config.a * 2)},
        "from_later": {"b": t.sample_from(lambda spec: spec.config.a * 2), "a": t.randint(1, 9)},
        "from_grid": {
            "a": t.grid_search([1, 2]),
            "b": t.sample_from(lambda spec: spec.config.a + 1),
        },
        "from_chain": {
            "c": t.sample_from(lambda spec: spec.config.b + 1),
            "b": t.sample_from(lambda spec: spec.config.a + 1),
            "a": t.randint(0, 5),
        },
        "from_nested": {
            "m": {"x": t.uniform(0, 1)},
            "y": t.sample_from(lambda spec: -spec.config.m.x),
        },
        "from_nothing": {"a": t.sample_from(lambda: 5), "b": t.uniform(0, 1)},
        "from_item": {"a": t.randint(0, 9), "b": t.sample_from(lambda spec: spec["config"]["a"])},
        "eval": {"a": t.randint(0, 9), "b": {"eval": "spec.config.a * 10"}},
        "eval_numpy": {"b": {"eval": "np.log2(8) + 0 * random.random()"}},
        "draws_a_space": {
            "a": t.sample_from(lambda spec: {"k": t.uniform(0, 1)}),
            "z": t.uniform(1, 2),
        },
    }


def _generators(t):
    """Spaces with arguments of BasicVariantGenerator."""
    grid = {"a": t.grid_search([1, 2, 3]), "b": t.uniform(0, 1), "c": t.randint(0, 100)}
    inner = {"m": {"x": t.uniform(0, 1), "y": t.grid_search([1, 2])}, "z": t.choice([1, 2])}
    dependent = {
        "a": t.grid_search([1, 2]),
        "b": t.uniform(0, 1),
        "c": t.sample_from(lambda spec: spec.config.a * spec.config.b),
    }
    return {
        "constant": (grid, {"constant_grid_search": True}),
        "constant_inner": (inner, {"constant_grid_search": True}),
        "constant_dependent": (dependent, {"constant_grid_search": True}),
        "constant_choice": (
            {"a": t.choice([t.uniform(0, 1), 5]), "g": t.grid_search([1, 2])},
            {"constant_grid_search": True},
        ),
        "points": (grid, {"points_to_evaluate": [{"a": 2, "b": 0.5, "c": 1}, {"b": 0.25}]}),
        "points_partial": (inner, {"points_to_evaluate": [{"m": {"x": 0.5}}]}),
        "points_grid_only": (
            inner,
            {"points_to_evaluate": [{"m": {"y": 2}}, {"m": {"y": 1}, "z": 2}]},
        ),
        "points_all": (grid, {"points_to_evaluate": [{"b": 0.1}, {"a": 1}, {"c": 3}]}),
        "points_too_many": (
            grid,
            {"points_to_evaluate": [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 1}, {"a": 2}]},
        ),
        "points_outside": (grid, {"points_to_evaluate": [{"b": 7.0}]}),
        "points_constant": (
            grid,
            {"constant_grid_search": True, "points_to_evaluate": [{"b": 0.5}]},
        ),
        "limited": (grid, {"max_concurrent": 0}),
    }


def spaces(t):
    """All: {name: (space, arguments of BasicVariantGenerator)}."""
    plain = {f"only_{name}": {"x": domain} for name, domain in simple(t).items()}
    plain["all_kinds"] = simple(t)
    plain |= _nested(t) | _dependent(t)
    return {name: (space, {}) for name, space in plain.items()} | _generators(t)


def random_states():
    """What BasicVariantGenerator is seeded with, and how numpy.random is."""
    import numpy as np

    np.random.seed(11)
    yield "seed", 7
    yield "generator", np.random.default_rng(3)
    yield "old", np.random.RandomState(5)
    yield "global", None


def plain(value):
    """`value` as JSON has it, with NaN as a word and types that differ kept apart."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if value is None or isinstance(value, (bool, str)):
        return value
    if not isinstance(value, (int, float)) and not hasattr(value, "dtype"):
        return type(value).__name__  # A domain that is part of a value.
    return f"{float(value)!r} {'float' if isinstance(value, float) else 'int'}"


def searcher_spaces(t):
    """Spaces that Optuna and HyperOpt take."""
    kinds = {name: domain for name, domain in simple(t).items() if name not in ("choice_dicts",)}
    alone = ["uniform", "loguniform", "quniform", "choice", "randint", "lograndint", "qrandint"]
    pairs = [
        ("uniform", "choice"),
        ("loguniform", "randint"),
        ("quniform", "choice_one"),
        ("randint", "qrandint"),
    ]
    made = {f"only_{name}": {"x": kinds[name]} for name in alone}
    made |= {f"{a}_{b}": {"b": kinds[b], "a": kinds[a]} for a, b in pairs}
    made |= {
        "nested": {
            "m": {"x": t.uniform(0, 1), "inner": {"y": t.randint(0, 9)}},
            "k": t.choice([1, 2]),
        },
        "constants": {"x": t.uniform(0, 1), "fixed": 3, "deep": {"also": "text"}},
        "deep_first": {
            "d": {"x": t.uniform(0, 1)},
            "x": t.uniform(0, 1),
            "e": {"x": t.uniform(0, 1)},
        },
        "bools": {"flag": t.choice([True, False]), "x": t.uniform(-1, 1)},
        "many": {f"x{i}": t.uniform(-i - 1, i + 1) for i in range(8)},
        "logs": {
            "a": t.loguniform(1e-5, 1),
            "b": t.lograndint(2, 256),
            "c": t.loguniform(10, 1000),
        },
        "steps": {
            "a": t.quniform(0, 1, 0.1),
            "b": t.qrandint(0, 100, 10),
            "c": t.quniform(-4, 4, 2),
        },
        "unsorted": {"z": t.uniform(0, 1), "a": t.uniform(0, 1), "m": t.randint(0, 3)},
        "mix": {k: kinds[k] for k in ("uniform", "loguniform", "choice", "randint", "lograndint")},
    }
    return made


HYPEROPT_ONLY = ("randn", "qrandn", "qloguniform", "qlograndint")


def suggestions(searcher, space, mode, count=30):
    """What a searcher suggests while it is told how good that was."""
    assert searcher.set_search_properties("loss", mode, space)
    said = []
    pending = []
    for number in range(count):
        name = f"t{number}"
        config = searcher.suggest(name)
        said.append(plain(config))
        pending.append((name, _loss(config)))
        # Three at once: a searcher has to go on while results are out.
        if number % 3 == 2:
            for which, (each, loss) in enumerate(pending):
                result = {"loss": loss, "training_iteration": 1}
                if which == 0:
                    searcher.on_trial_result(each, result)
                failed = number == 8 and which == 1
                searcher.on_trial_complete(each, result=None if failed else result, error=failed)
            pending = []
    return said


def _loss(config):
    total = 0.0
    for value in config.values():
        if isinstance(value, dict):
            total += _loss(value)
        elif isinstance(value, (int, float)):
            total += math.tanh(value) ** 2
        else:
            total += len(str(value))
    return total


def searchers(library, t):
    """(name, searcher, space, mode) of all seeded searches."""
    for (name, space), mode in zip(searcher_spaces(t).items(), itertools.cycle(["min", "max"])):
        yield f"optuna {name}", library["OptunaSearch"](seed=len(name)), space, mode
        search = library["HyperOptSearch"](random_state_seed=len(name), n_initial_points=6)
        yield f"hyperopt {name}", search, space, mode
    for name in HYPEROPT_ONLY:
        search = library["HyperOptSearch"](random_state_seed=3, n_initial_points=5)
        yield f"hyperopt only_{name}", search, {"x": simple(t)[name]}, "min"
    choice = {
        "opt": t.choice([{"lr": t.uniform(0, 1)}, {"m": t.randint(0, 5)}, "none"]),
        "y": t.uniform(0, 1),
    }
    yield "hyperopt choice_of_spaces", library["HyperOptSearch"](random_state_seed=4), choice, "max"
    points = [{"x": 0.25, "k": "b"}, {"x": 0.75, "k": "a"}]
    space = {"x": t.uniform(0, 1), "k": t.choice(["a", "b"])}
    yield "optuna points", library["OptunaSearch"](seed=1, points_to_evaluate=points), space, "min"
    yield (
        "hyperopt points",
        library["HyperOptSearch"](random_state_seed=1, points_to_evaluate=points),
        space,
        "min",
    )
    rewarded = library["OptunaSearch"](
        seed=1, points_to_evaluate=points, evaluated_rewards=[3.0, 1.0]
    )
    yield "optuna rewards", rewarded, space, "max"
    drawn = library["HyperOptSearch"](random_state_seed=1, n_initial_points=2, gamma=0.5)
    yield "hyperopt gamma", drawn, space, "min"


def record():
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from ray import tune
    from ray.tune.search.basic_variant import BasicVariantGenerator
    from ray.tune.search.hyperopt import HyperOptSearch
    from ray.tune.search.optuna import OptunaSearch

    def nothing(config):
        pass

    tune.register_trainable("nothing", nothing)
    answers = {"variants": {}, "suggestions": {}}
    for name in spaces(tune):
        for state, random_state in random_states():
            space, arguments = spaces(tune)[name]
            generator = BasicVariantGenerator(random_state=random_state, **arguments)
            generator.add_configurations(
                {"e": {"run": "nothing", "config": space, "num_samples": 3}}
            )
            trials = list(iter(generator.next_trial, None))
            answers["variants"][f"{name} {state}"] = [
                generator.total_samples,
                [
                    [plain(trial.config), trial.experiment_tag, plain(trial.evaluated_params)]
                    for trial in trials
                ],
            ]
    library = {"OptunaSearch": OptunaSearch, "HyperOptSearch": HyperOptSearch}
    for name, searcher, space, mode in searchers(library, tune):
        answers["suggestions"][name] = suggestions(searcher, space, mode)
    RECORDED.write_bytes(gzip.compress(json.dumps(answers).encode(), mtime=0))


if __name__ == "__main__":
    record()
