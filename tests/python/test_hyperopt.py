# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.util.hyperopt: hyperopt.fmin whose trials are tasks."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import wait_until

hyperopt = pytest.importorskip("hyperopt", reason="hyperopt is not installed")
np = pytest.importorskip("numpy")

from sheaf.util.hyperopt import SheafTrials  # noqa: E402

pytestmark = pytest.mark.usefixtures("node")
SPACE = {"x": hyperopt.hp.uniform("x", -5, 5)}


def search(function, trials, evals, **more):
    settings = {"algo": hyperopt.rand.suggest, "rstate": np.random.default_rng(1), **more}
    return hyperopt.fmin(
        function, SPACE, max_evals=evals, trials=trials, show_progressbar=False, **settings
    )


def test_a_search_finds_the_minimum_and_can_go_on():
    trials = SheafTrials(4)

    def square(config):
        return {"loss": (config["x"] - 2) ** 2, "status": "ok", "attachments": {"by": os.getpid()}}

    best = search(square, trials, 30, algo=hyperopt.tpe.suggest)
    assert abs(best["x"] - 2) < 0.5 and len(trials) == trials.count_successful_trials() == 30
    pids = {trials.trial_attachments(trial)["by"] for trial in trials.trials}
    assert os.getpid() not in pids and len(pids) > 1
    again = pickle.loads(pickle.dumps(trials))
    search(square, again, 40)
    assert len(again) == 40 and len(trials) == 30


def test_no_more_trials_run_at_once_than_asked_for(tmp_path):
    def meet(config):
        mine = tmp_path / str(config["x"])
        mine.touch()
        seen = len(list(tmp_path.iterdir()))
        if seen < 3:  # Waits for two others.
            wait_until(lambda: len(list(tmp_path.iterdir())) >= 3 or list(tmp_path.glob("met")))
        most = len([one for one in tmp_path.iterdir() if one.name != "met"])
        (tmp_path / "met").touch()
        mine.unlink()
        return most

    trials = SheafTrials(3)
    search(meet, trials, 12)
    assert max(trials.losses()) == 3


def test_a_trial_that_fails_does_not_end_the_search():
    def fails_below_zero(config):
        if config["x"] < -3:
            os.kill(os.getpid(), signal.SIGKILL)
        if config["x"] < 0:
            raise ValueError("below zero")
        return config["x"]

    trials = SheafTrials(4)
    best = search(fails_below_zero, trials, 20)
    errors = [one["misc"]["error"] for one in trials._dynamic_trials if one["state"] == 3]
    assert best["x"] >= 0 and trials.count_total_trials() == 20
    assert ("builtins.ValueError", "ValueError: below zero") in errors
    assert any("WorkerCrashedError" in kind for kind, _ in errors)


def test_a_search_without_a_good_trial_says_why():
    def fails(config):
        raise ValueError("by design")

    with pytest.raises(
        hyperopt.exceptions.AllTrialsFailed, match="5 failed, 0 were cancelled; .* by design"
    ):
        search(fails, SheafTrials(2), 5)


def sleeps_below_zero(config):
    if config["x"] < 0:
        time.sleep(1000)
    return config["x"]


@pytest.mark.parametrize(
    ("bound", "reason"),
    [
        ({"timeout": 1.0}, "timeout"),
        ({"loss_threshold": 0.5}, "loss threshold"),
        ({"early_stop_fn": lambda trials: (any(trials.losses()), [])}, "early stopping"),
    ],
)
def test_what_bounds_a_search_cancels_what_runs(bound, reason):
    trials = SheafTrials(4)
    begun = time.monotonic()
    space = {"x": hyperopt.hp.choice("x", [-1, 0.1])}
    hyperopt.fmin(
        sleeps_below_zero,
        space,
        algo=hyperopt.rand.suggest,
        max_evals=1000,
        trials=trials,
        rstate=np.random.default_rng(4),
        show_progressbar=False,
        return_argmin=False,  # On a busy machine no trial may be over in time.
        **bound,
    )
    assert reason in trials.cancelled_reason
    assert time.monotonic() - begun < 20 and 0 < trials.count_cancelled_trials() <= 4


def test_ctrl_c_cancels_what_runs():
    trials = SheafTrials(2)

    def interrupt():
        wait_until(lambda: trials._states().count(1) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        hyperopt.fmin(
            lambda x: time.sleep(1000),
            hyperopt.hp.uniform("x", 0, 1),
            algo=hyperopt.rand.suggest,
            max_evals=10,
            trials=trials,
            show_progressbar=False,
        )
    thread.join()
    assert trials.count_cancelled_trials() >= 2 and trials.cancelled_reason == "by the user"


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="parallelism=0"):
        SheafTrials(0)
    with pytest.raises(ValueError, match="pass_expr_memo_ctrl"):
        search(len, SheafTrials(2), 1, pass_expr_memo_ctrl=True)


@pytest.mark.parametrize("name", ["hyperopt", "optuna"])
def test_what_is_not_installed_is_named(name):
    text = f"import sys; sys.modules[{name!r}] = None; import sheaf.util.{name}"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert f"needs the package {name}" in done.stderr and f"pip install {name}" in done.stderr
