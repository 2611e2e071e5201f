# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Metrics and configurations with values that loggers cannot write as they are: the experiment goes
on, and what can be written is there."""

import json
import pathlib

import numpy as np
import pytest
import sheaf
from sheaf import tune


class HasNoText:
    def __str__(self):
        raise ValueError("no text")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


def fit(trainable, folder, space=None, stop=None):
    return tune.Tuner(
        trainable,
        param_space=space or {},
        run_config=tune.RunConfig(name="e", storage_path=str(folder), verbose=0, stop=stop),
    ).fit()


def rows_of(result):
    lines = (pathlib.Path(result.path) / "result.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


ODD = {
    "array": np.arange(3),
    "square": np.zeros((2, 2)),
    "one": np.array([5.0]),
    "none": np.array([]),
    "type": np.float32,
    "bool": True,
    "huge": 10**400,
    "lone": "\ud800",
    "set": {1, 2},
    "by number": {1: 2, (3, 4): 5},
    "no text": HasNoText(),
    "complex": np.complex64(1j),
}


def report(odd):
    for step in range(2):
        tune.report({"v": step, **odd})


@pytest.mark.parametrize("name", ODD)
def test_no_value_of_a_metric_ends_an_experiment(name, tmp_path):
    odd = {name: ODD[name]}
    grid = fit(lambda config: report(odd), tmp_path)
    assert not grid.errors
    assert [row["v"] for row in rows_of(grid[0])] == [0, 1]
    assert len((pathlib.Path(grid[0].path) / "progress.csv").read_text().splitlines()) >= 3


def test_tensorboard_gets_numbers_arrays_of_one_and_bools(tmp_path):
    pytest.importorskip("tensorboardX")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    grid = fit(lambda config: report(ODD), tmp_path)
    log = events.EventAccumulator(grid[0].path)
    log.Reload()
    found = {tag: log.Scalars(tag)[0].value for tag in log.Tags()["scalars"]}
    assert found["ray/tune/one"] == 5 and found["ray/tune/bool"] == 1
    assert not {"ray/tune/array", "ray/tune/square", "ray/tune/none"} & found.keys()


def test_a_configuration_may_have_types(tmp_path):
    grid = fit(
        lambda config: {"v": float(config["dtype"](1.5))},
        tmp_path,
        {"dtype": np.float32, "shape": (np.int64(3),), 7: "seven"},
    )
    assert not grid.errors and grid[0].metrics["v"] == 1.5
    assert "float32" in (pathlib.Path(grid[0].path) / "params.json").read_text()


def test_a_criterion_that_a_result_has_no_value_for_is_not_met(tmp_path):
    def train(config):
        for step in range(10):
            tune.report({"v": step, **({"val": step / 10} if step % 2 else {})})

    grid = fit(train, tmp_path, stop={"val": 0.3})
    assert not grid.errors
    assert grid[0].metrics["v"] == 3
