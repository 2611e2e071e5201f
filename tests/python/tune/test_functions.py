# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What functions of trials may return and yield, what else they may be given, and what becomes of
those that fail."""

import pathlib

import numpy as np
import pytest
import sheaf
from sheaf import tune


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


def fit(trainable, folder, space=None, run=None, **config):
    return tune.Tuner(
        trainable,
        param_space=space or {},
        tune_config=tune.TuneConfig(**config),
        run_config=tune.RunConfig(
            name="e", storage_path=str(folder), **{"verbose": 0, **(run or {})}
        ),
    ).fit()


def yields(config):
    try:
        for step in range(5):
            yield {"v": step}
    finally:
        pathlib.Path(config["mark"]).touch()


def test_what_a_generator_yields_are_its_reports(tmp_path):
    space = {"mark": str(tmp_path / "closed")}
    grid = fit(yields, tmp_path / "all", space)
    assert [row["v"] for row in grid[0].metrics_history] == list(range(5))
    (tmp_path / "closed").unlink()
    grid = fit(yields, tmp_path / "some", space, run={"stop": {"v": 2}})
    assert [row["v"] for row in grid[0].metrics_history] == [0, 1, 2]
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("output", [None, 2, np.float32(2), {"v": 1}])
def test_a_function_may_return_nothing_a_number_or_a_dict(output, tmp_path):
    grid = fit(lambda config: output, tmp_path)
    assert not grid.errors
    if output is not None:
        assert grid[0].metrics.get("_metric", 2) == 2


def reports(config):
    values = {"step": 0, "nested": {"step": 0}, "array": np.zeros(1)}
    for step in range(5):
        values["step"] = values["nested"]["step"] = step
        values["array"][0] = step
        tune.report(values)


def yields_one_dict(config):
    values = {"step": 0, "nested": {"step": 0}, "array": np.zeros(1)}
    for step in range(5):
        values["step"] = values["nested"]["step"] = step
        values["array"][0] = step
        yield values


class Steps(tune.Trainable):
    def setup(self, config):
        self.values = {"nested": {"step": -1}, "array": np.full(1, -1.0)}

    def step(self):
        self.values["nested"]["step"] += 1
        self.values["array"] += 1
        return self.values


@pytest.mark.parametrize("trainable", [reports, yields_one_dict, Steps])
def test_a_report_is_what_it_was_though_its_objects_are_used_again(trainable, tmp_path):
    grid = fit(trainable, tmp_path, run={"stop": {"training_iteration": 5}})
    history = grid[0].metrics_history
    assert [row["nested"]["step"] for row in history] == list(range(5))
    assert [row["array"][0] for row in history] == list(range(5))


async def coroutine(config):
    return {"v": 1}


@pytest.mark.parametrize("trainable", [coroutine, lambda config: "text", lambda config: [1]])
def test_what_is_no_result_is_the_trials_error(trainable, tmp_path):
    error = fit(trainable, tmp_path).errors[0]
    assert isinstance(error, ValueError)
    assert "want None, a number or a dict" in str(error)


def two(config, a, b=0):
    return {"a": sum(a), "b": b, "cpus": tune.get_context().get_trial_resources().bundles[0]["CPU"]}


class Two(tune.Trainable):
    def setup(self, config, a, b=0):
        self.row = {"a": sum(a), "b": b, "cpus": self.trial_resources.bundles[0]["CPU"]}

    def step(self):
        return {**self.row, "done": True}


@pytest.mark.parametrize("trainable", [two, Two])
def test_parameters_and_resources_are_given_in_any_order_and_often(trainable, tmp_path):
    with_both = [
        tune.with_parameters(tune.with_resources(trainable, {"cpu": 2}), a=[1, 2], b=5),
        tune.with_resources(tune.with_parameters(trainable, a=[1, 2], b=5), {"cpu": 2}),
        tune.with_parameters(
            tune.with_resources(tune.with_parameters(trainable, a=[1, 2], b=4), {"cpu": 2}), b=5
        ),
    ]
    for number, one in enumerate(with_both):
        grid = fit(one, tmp_path / str(number))
        assert not grid.errors
        assert [grid[0].metrics[name] for name in ("a", "b", "cpus")] == [3, 5, 2]


def test_a_trial_that_fails_before_its_first_report_has_its_configuration(tmp_path):
    def fails(config):
        raise ValueError("at once")

    grid = fit(fails, tmp_path, {"x": tune.grid_search([1, 2])})
    assert [result.config for result in grid] == [{"x": 1}, {"x": 2}]
    restored = tune.Tuner.restore(str(tmp_path / "e"), fails).get_results()
    assert [result.config for result in restored] == [{"x": 1}, {"x": 2}]
