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


async def coroutine(config):
    return {"v": 1}


@pytest.mark.parametrize("trainable", [coroutine, lambda config: "text", lambda config: [1]])
def test_what_is_no_result_is_the_trials_error(trainable, tmp_path):
    error = fit(trainable, tmp_path).errors[0]
    assert isinstance(error, ValueError)
    assert "want None, a number or a dict" in str(error)
