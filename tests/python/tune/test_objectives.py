# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Several objectives of one experiment, and results without the objective."""

import pytest
import sheaf
from sheaf import tune
from sheaf.tune.schedulers import ASHAScheduler
from sheaf.tune.search import ConcurrencyLimiter
from sheaf.tune.search.optuna import OptunaSearch


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


def report_both(config):
    tune.report({"loss": config["x"] ** 2, "speed": config["x"]})


def searcher():
    pytest.importorskip("optuna")
    return OptunaSearch(metric=["loss", "speed"], mode=["min", "max"], seed=2)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_searcher_may_have_several_objectives(wrapped, tmp_path):
    search = searcher()
    grid = tune.Tuner(
        report_both,
        param_space={"x": tune.uniform(0, 4)},
        tune_config=tune.TuneConfig(
            search_alg=ConcurrencyLimiter(search, 1) if wrapped else search, num_samples=4
        ),
        run_config=tune.RunConfig(name="e", storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert (len(grid), grid.num_errors) == (4, 0)
    values = [result.metrics["speed"] for result in grid]
    assert grid.get_best_result("loss", "min").metrics["speed"] == min(values)
    assert len(search._study.best_trials) == 4  # None of x**2 and x is better in both.
    restored = tune.Tuner.restore(str(tmp_path / "e"), report_both).fit()
    assert [result.metrics["speed"] for result in restored] == values


def test_a_run_may_have_several_objectives(tmp_path):
    analysis = tune.run(
        report_both,
        config={"x": tune.uniform(0, 4)},
        search_alg=searcher(),
        num_samples=2,
        name="r",
        storage_path=str(tmp_path),
        verbose=0,
    )
    assert len(analysis.trials) == 2


def test_a_scheduler_without_an_objective_is_refused_before_a_trial_begins(tmp_path):
    tuner = tune.Tuner(
        report_both,
        tune_config=tune.TuneConfig(scheduler=ASHAScheduler()),
        run_config=tune.RunConfig(name="e", storage_path=str(tmp_path), verbose=0),
    )
    with pytest.raises(ValueError, match="without a valid `metric`"):
        tuner.fit()
    assert not (tmp_path / "e").exists()


def test_a_result_without_the_metric_ends_the_experiment_unless_it_may_lack(tmp_path, monkeypatch):
    def fit(name):
        return tune.Tuner(
            lambda config: tune.report({"other": 1}),
            tune_config=tune.TuneConfig(metric="loss", mode="min"),
            run_config=tune.RunConfig(name=name, storage_path=str(tmp_path), verbose=0),
        ).fit()

    with pytest.raises(tune.TuneError, match="TUNE_DISABLE_STRICT_METRIC_CHECKING=1"):
        fit("strict")
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    assert fit("lenient")[0].metrics["other"] == 1
