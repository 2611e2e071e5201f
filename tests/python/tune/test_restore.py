# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments whose driver is killed, or interrupted, and that are taken up again: nothing that was
over is lost or run twice, the rest goes on from its checkpoints, the searcher too."""

import os
import pathlib

import pytest
import sheaf
import tune_kills
from sheaf import tune
from sheaf.tune.execution.experiment_files import SEARCHER, read_journal
from sheaf.tune.search import ConcurrencyLimiter


@pytest.fixture(scope="module", autouse=True)
def cluster():
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield
    sheaf.shutdown()


@pytest.mark.parametrize("searched", [False, True])
def test_a_driver_that_is_killed_anywhere_loses_nothing(tmp_path, searched):
    undisturbed = None
    if searched:
        (tmp_path / "first").mkdir()
        undisturbed = tune_kills.what_is_suggested(tmp_path / "first")
        assert len(set(undisturbed)) == tune_kills.TRIALS
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        tune_kills.check(folder, seed, searched, undisturbed)


class Interrupts(tune.Callback):
    """Ends the experiment behind so many trials."""

    def __init__(self, trials):
        self.left = trials

    def on_trial_complete(self, iteration, trials, trial, **info):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def walk(folder, callbacks=()):
    return tune.Tuner(
        lambda config: {"v": config["n"]},
        tune_config=tune.TuneConfig(
            search_alg=ConcurrencyLimiter(tune_kills.Walk(), 1),
            num_samples=12,
            metric="v",
            mode="max",
        ),
        run_config=tune.RunConfig(name="walk", storage_path=folder, verbose=0, callbacks=callbacks),
    )


class LooksAtStates(tune.Callback):
    """At each result, the states of the searcher that the journal has named last."""

    def setup(self, **info):
        self.seen = 0

    def on_trial_result(self, iteration, trials, trial, result, **info):
        folder = pathlib.Path(trial.local_path).parent
        records, _ = read_journal(None, str(folder))
        named = [record["searcher"] for record in records if "searcher" in record]
        for number in named[-2:]:
            state = {file.name for file in (folder / SEARCHER.format(number)).iterdir()}
            assert state == {"state", "state.wrapper"}, (number, state)
        self.seen = max(self.seen, len(named))


def test_the_state_before_the_last_is_whole_too(tmp_path):
    """Where a disk loses the end of the journal, a restore goes on from there."""
    looks = LooksAtStates()
    (tmp_path / "begun").touch()
    assert not tune_kills.tuner(tmp_path, True, [looks]).fit().errors
    assert looks.seen >= 2


def test_a_searcher_goes_on_as_if_nothing_had_happened(tmp_path):
    whole = [result.config["n"] for result in walk(tmp_path / "whole").fit()]
    with pytest.raises(KeyboardInterrupt):
        walk(tmp_path, [Interrupts(5)]).fit()
    again = tune.Tuner.restore(str(tmp_path / "walk"), lambda config: {"v": config["n"]})
    again._ask.run.callbacks = ()
    assert [result.config["n"] for result in again.fit()] == whole


def test_what_has_failed_goes_on_begins_anew_or_stays(tmp_path):
    def fails(config):
        if not os.path.exists(config["mend"]):
            raise ValueError("not yet")
        tune.report({"v": 1})

    mend = tmp_path / "mend"
    tuner = tune.Tuner(
        fails,
        param_space={"mend": str(mend)},
        run_config=tune.RunConfig(name="e", storage_path=tmp_path, verbose=0),
    )
    assert tuner.fit().num_errors == 1
    path = str(tmp_path / "e")
    assert tune.Tuner.restore(path, fails).fit().num_errors == 1
    assert isinstance(tune.Tuner.restore(path, fails).get_results().errors[0], ValueError)
    assert tune.Tuner.restore(path, fails, resume_errored=True).fit().num_errors == 1
    mend.touch()
    grid = tune.Tuner.restore(path, fails, restart_errored=True).fit()
    assert grid.num_errors == 0 and grid[0].metrics["v"] == 1
    with pytest.raises(ValueError, match="the experiment in .* had 'fails'"):
        tune.Tuner.restore(path, tune_kills.train)


def test_run_takes_up_where_it_is_told(tmp_path):
    def once(**more):
        return tune.run(
            lambda config: {"v": config["x"]},
            config={"x": tune.uniform(0, 1)},
            num_samples=3,
            name="r",
            storage_path=str(tmp_path),
            verbose=0,
            **more,
        ).results

    with pytest.raises(ValueError, match="there is no experiment"):
        once(resume=True)
    first = once(resume="AUTO")
    assert once(resume=True) == first == once(resume="AUTO")
