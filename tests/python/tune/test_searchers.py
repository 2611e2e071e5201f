# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Searchers that go on from a file, wrap others, or stand on packages that need not be installed."""

import json
import logging

import pytest
from sheaf.tune.search import (
    BasicVariantGenerator,
    ConcurrencyLimiter,
    Repeater,
    Searcher,
    create_searcher,
    grid_search,
    sample,
)
from sheaf.tune.search.bohb import TuneBOHB
from sheaf.tune.search.flatten import flatten_dict, merge_dicts, unflatten_dict

SPACE = {"x": sample.uniform(-1, 1), "deep": {"y": sample.uniform(0, 2)}}


def made(name):
    """A seeded searcher of each kind; skips where its package is missing."""
    module = {"bayesopt": "bayes_opt"}.get(name, name)
    pytest.importorskip(module, reason=f"{module} is not installed")
    logging.getLogger("optuna").setLevel(logging.WARNING)
    if name == "nevergrad":
        import nevergrad

        searcher = create_searcher(
            name, optimizer=nevergrad.optimizers.OnePlusOne, optimizer_kwargs={"budget": 50}
        )
    else:
        seeds = {"seed": 3, "random_state": 3, "random_state_seed": 3}
        if name == "ax":
            logging.getLogger("ax").setLevel(logging.ERROR)
        searcher = create_searcher(name, random_search_steps=4, n_initial_points=4, **seeds)
    assert searcher.set_search_properties("loss", "min", SPACE)
    if name == "nevergrad":
        searcher._optimizer.parametrization.random_state.seed(5)
    return searcher


def tell(searcher, name, config):
    loss = (config["x"] - 0.3) ** 2 + (config["deep"]["y"] - 1.5) ** 2
    searcher.on_trial_result(name, {"loss": loss, "training_iteration": 1})
    searcher.on_trial_complete(name, {"loss": loss, "training_iteration": 1})
    return loss


KINDS = ["optuna", "hyperopt", "bayesopt", "nevergrad", "ax"]


# Ax's models draw from torch's generator, so that two of the same state differ.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ax"])
def test_a_searcher_goes_on_from_a_file(kind, tmp_path):
    searcher = made(kind)
    for number in range(8):
        tell(searcher, f"t{number}", searcher.suggest(f"t{number}"))
    searcher.suggest("out")  # One is under way.
    searcher.save_to_dir(str(tmp_path), "session")
    other = made(kind)
    other.restore_from_dir(str(tmp_path))
    for each in (searcher, other):
        tell(each, "out", {"x": 0.5, "deep": {"y": 0.5}})
    for number in range(8, 14):
        name = f"t{number}"
        configs = [each.suggest(name) for each in (searcher, other)]
        assert configs[0] == configs[1]
        for each, config in zip((searcher, other), configs):
            tell(each, name, config)


@pytest.mark.parametrize("kind", KINDS)
def test_a_searcher_finds_the_minimum(kind):
    searcher = made(kind)
    losses = []
    for number in range(15 if kind == "ax" else 40):  # Ax takes half a second for each.
        config = searcher.suggest(f"t{number}")
        if isinstance(config, dict):
            assert -1 <= config["x"] <= 1 and 0 <= config["deep"]["y"] <= 2
            losses.append(tell(searcher, f"t{number}", config))
    assert min(losses) < 0.05, sorted(losses)[:3]
    assert min(losses[4:]) < min(losses[:4])


@pytest.mark.parametrize("kind", KINDS)
def test_a_searcher_takes_no_grid_and_one_space(kind):
    searcher = made(kind)
    assert not searcher.set_search_properties("loss", "min", SPACE)
    with pytest.raises(ValueError, match="Grid search parameters cannot"):
        type(searcher).convert_search_space({"x": grid_search([1, 2])})
    with pytest.raises(ValueError, match="does not support parameters of type `Function`"):
        type(searcher).convert_search_space({"x": sample.sample_from(lambda: 1)})


@pytest.mark.parametrize("kind", ["optuna", "hyperopt", "bayesopt"])
def test_a_searcher_without_a_space_says_so(kind):
    pytest.importorskip({"bayesopt": "bayes_opt"}.get(kind, kind))
    with pytest.raises(RuntimeError, match="no search space has been defined"):
        create_searcher(kind, metric="loss", mode="min").suggest("t")


def test_lists_of_a_space_stay_lists():
    pytest.importorskip("optuna")
    from sheaf.tune.search.optuna import OptunaSearch

    space = {
        "layers": [sample.randint(1, 9), 7, {"k": sample.uniform(0, 1)}],
        "pair": (1, sample.randint(0, 3)),
    }
    searcher = OptunaSearch(seed=1)
    searcher.set_search_properties("loss", "min", space)
    config = searcher.suggest("t")
    assert config["layers"][1] == 7 and 1 <= config["layers"][0] < 9
    assert 0 <= config["layers"][2]["k"] <= 1
    assert isinstance(config["pair"], tuple) and config["pair"][0] == 1


def test_optuna_defines_by_running_and_has_several_objectives():
    pytest.importorskip("optuna")
    from sheaf.tune.search.optuna import OptunaSearch

    def space(trial):
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            trial.suggest_float("x", 0, 1)
        return {"constant": 5}

    searcher = OptunaSearch(space, metric=["m", "n"], mode=["min", "max"], seed=1)
    for number in range(6):
        config = searcher.suggest(f"t{number}")
        assert config["constant"] == 5 and ("x" in config) == (config["kind"] == "a")
        searcher.on_trial_result(f"t{number}", {"m": 1})
        searcher.on_trial_complete(f"t{number}", {"m": number, "n": number})
    assert len(searcher._study.best_trials) == 6
    with pytest.raises(TypeError, match="returns a dict"):
        OptunaSearch(lambda trial: 5, metric="m", mode="min").suggest("t")


@pytest.mark.parametrize("wrap", [lambda s: ConcurrencyLimiter(s, 2), lambda s: Repeater(s, 2)])
def test_a_wrapper_goes_on_from_a_file(wrap, tmp_path):
    class Counting(Searcher):
        count = 0

        def suggest(self, trial_id):
            self.count += 1
            return {"x": self.count}

        def on_trial_complete(self, trial_id, result=None, error=False):
            self.heard = (trial_id, result)

        def save(self, path):
            with open(path, "w") as file:
                json.dump(self.count, file)

        def restore(self, path):
            with open(path) as file:
                self.count = json.load(file)

    wrapper = wrap(Counting("m", "min"))
    first = wrapper.suggest("a")
    wrapper.save(str(tmp_path / "state"))
    other = wrap(Counting("m", "min"))
    other.restore(str(tmp_path / "state"))
    assert wrapper.suggest("b") == other.suggest("b") != first
    assert wrapper.suggest("c") == other.suggest("c")
    for each in (wrapper, other):
        each.on_trial_complete("a", {"m": 1})
        each.on_trial_complete("b", {"m": 3})
    assert wrapper.searcher.heard == other.searcher.heard


def test_a_missing_package_and_a_missing_searcher_are_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match="pip install optuna"):
        create_searcher("optuna")
    with pytest.raises(NotImplementedError, match="Sheaf has no TuneBOHB: use ASHAScheduler"):
        TuneBOHB(metric="m")
    for name in ("hebo", "zoopt"):
        with pytest.raises(NotImplementedError, match="use "):
            create_searcher(name)


@pytest.mark.filterwarnings("ignore")
def test_ax_goes_on_from_a_file_and_hears_of_failures(tmp_path):
    space = {
        "lr": sample.loguniform(1e-4, 1e-1),
        "layers": sample.randint(1, 5),
        "width": sample.quniform(0, 1, 0.25),
        "kind": sample.choice(["a", "b", "c"]),
        "list": [sample.uniform(0, 1), 7],
    }
    pytest.importorskip("ax")
    logging.getLogger("ax").setLevel(logging.ERROR)

    def fresh():
        searcher = create_searcher(
            "ax",
            points_to_evaluate=[
                {"lr": 0.01, "layers": 2, "width": 0.5, "kind": "b", "list/0": 0.5}
            ],
            outcome_constraints=["seconds <= 10"],
        )
        assert searcher.set_search_properties("loss", "min", space)
        return searcher

    first = fresh()
    config = first.suggest("t0")
    assert config == {"lr": 0.01, "layers": 2, "width": 0.5, "kind": "b", "list": [0.5, 7]}
    first.on_trial_complete("t0", {"loss": 1.0, "seconds": 1, "other": "text"})
    for number, result in enumerate([{"loss": float("nan")}, {"los": 1}, None], start=1):
        config = first.suggest(f"t{number}")
        assert 1e-4 <= config["lr"] <= 1e-1 and config["layers"] in (1, 2, 3, 4)
        assert config["width"] in (0, 0.25, 0.5, 0.75, 1) and config["kind"] in ("a", "b", "c")
        first.on_trial_complete(f"t{number}", result, error=result is None)
    first.suggest("out")
    first.save(str(tmp_path / "state"))
    second = fresh()
    second.restore(str(tmp_path / "state"))
    second.on_trial_complete("out", {"loss": 0.5, "seconds": 2})
    rows = second._client.summarize()
    assert list(rows["trial_status"]) == ["COMPLETED", "FAILED", "FAILED", "FAILED", "COMPLETED"]
    assert isinstance(second.suggest("t5"), dict)


def test_ax_says_what_it_cannot_choose_among():
    pytest.importorskip("ax")
    for space, text in (
        ({"x": sample.choice([1, "a"])}, "values of one type"),
        ({"x": sample.randn(0, 1)}, "Ax does not support"),
        ({"x": 3}, "nothing in it to choose"),
    ):
        with pytest.raises(ValueError, match=text):
            create_searcher("ax", space=space, metric="loss", mode="min")


def test_a_million_samples_cost_nothing_until_they_are_asked_for():
    generator = BasicVariantGenerator(random_state=1)
    space = {"x": sample.uniform(0, 1), "g": grid_search(range(1000))}
    assert generator.total(space, 1000) == 1_000_000
    variants = generator.variants(space, 1000)
    assert [next(variants)[1]["g"] for _ in range(3)] == [0, 1, 2]
    assert len(json.dumps(generator.get_state())) < 1000
    endless = BasicVariantGenerator().variants({"x": sample.uniform(0, 1)}, -1)
    assert len({next(endless)[1]["x"] for _ in range(50)}) == 50


def test_functions_may_read_the_configuration_in_each_way():
    space = {
        "a": sample.sample_from(lambda config: config["c"] + 1),
        "b": sample.sample_from(lambda spec: spec.config.c + 2),
        "d": sample.sample_from(lambda config: config.get("none", 7)),
        "c": sample.choice([10]),
    }
    for given in (space, {"config": space}):
        ((_, config),) = BasicVariantGenerator().variants(given, 1)
        assert config.get("config", config) == {"a": 11, "b": 12, "c": 10, "d": 7}


def test_a_preset_that_the_space_has_not_is_named():
    generator = BasicVariantGenerator(points_to_evaluate=[{"deep": {"other": 1}}])
    with pytest.raises(ValueError, match="points_to_evaluate has the key deep/other"):
        next(generator.variants({"deep": {"x": 1}}, 1))


def test_flat_and_nested():
    nested = {"a": {"b": 1, "c": {"d": 2}}, "e": 3, "empty": {}}
    assert flatten_dict(nested) == {"e": 3, "a/b": 1, "a/c/d": 2}
    assert list(flatten_dict(nested)) == ["e", "a/b", "a/c/d"]
    assert unflatten_dict(flatten_dict(nested)) == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert flatten_dict({"l": [1, {"k": 2}]}, flatten_list=True) == {"l/0": 1, "l/1/k": 2}
    assert merge_dicts(nested, {"a": {"b": 5}, "f": 6})["a"] == {"b": 5, "c": {"d": 2}}
    with pytest.raises(ValueError, match="has '/' in it"):
        flatten_dict({"a/b": 1}, prevent_delimiter=True)
