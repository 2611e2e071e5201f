# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.util.optuna: studies that all processes share, and their trials as tasks."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import sheaf
from conftest import joined_cluster, wait_until

optuna = pytest.importorskip("optuna", reason="optuna is not installed")

from optuna.storages import JournalStorage  # noqa: E402
from optuna.trial import TrialState  # noqa: E402
from sheaf.util.optuna import SheafJournal, optimize  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture
def study(node, request):
    """A study in a journal of its own."""
    journal = SheafJournal(request.node.name)
    yield optuna.create_study(storage=JournalStorage(journal), study_name="s")
    journal.delete()


def square(trial):
    return (trial.suggest_float("x", -5, 5) - 2) ** 2


def states(study):
    return [trial.state for trial in study.trials]


def test_a_journal_keeps_what_is_appended_in_order(node):
    journal = SheafJournal("order")
    journal.append_logs([{"k": 0}, {"k": 1}])
    assert journal.read_logs(0) == [{"k": 0}, {"k": 1}]
    other = pickle.loads(pickle.dumps(journal))  # The same journal.
    other.append_logs([{"k": 2}])
    assert other.read_logs(0) == [{"k": 0}, {"k": 1}, {"k": 2}]
    journal.append_logs([{"k": 3}])
    assert journal.read_logs(2) == [{"k": 2}, {"k": 3}] and journal.read_logs(4) == []
    journal.save_snapshot(b"snapshot")
    assert other.load_snapshot() == b"snapshot"
    journal.delete()


def test_a_read_after_an_append_costs_no_message_of_its_own(node):
    journal = SheafJournal("messages")
    asked = []
    ask = journal._ask
    journal._ask = lambda method, *rest: (asked.append(method), ask(method, *rest))[1]
    for k in range(5):
        journal.append_logs([{"k": k}])
        assert journal.read_logs(k) == [{"k": k}]
    assert asked == ["append"] * 5
    other = SheafJournal("messages")
    other.append_logs([{"k": 5}])
    assert journal.read_logs(5) == [{"k": 5}] and asked[-1] == "read"
    journal.delete()


def test_appends_of_many_processes_are_all_there_once(node):
    @sheaf.remote
    def append(number):
        journal = SheafJournal("many")
        for k in range(20):
            journal.append_logs([{"by": number, "k": k}, {"by": number, "k": k + 0.5}])

    sheaf.get([append.remote(number) for number in range(4)])
    journal = SheafJournal("many")
    rows = journal.read_logs(0)
    for number in range(4):
        own = [row["k"] for row in rows if row["by"] == number]
        assert own == [k / 2 for k in range(40)]
    assert all(a["by"] == b["by"] for a, b in zip(rows[::2], rows[1::2]))
    journal.delete()


def test_trials_run_as_tasks_and_are_in_the_study(study):
    def objective(trial):
        trial.set_user_attr("pid", os.getpid())
        return square(trial)

    optimize(study, objective, 30)
    assert states(study) == [TrialState.COMPLETE] * 30
    assert study.best_value < 1
    pids = {trial.user_attrs["pid"] for trial in study.trials}
    assert os.getpid() not in pids and len(pids) > 1
    assert len({trial.params["x"] for trial in study.trials}) == 30  # Seeds differ.


def test_trials_hold_what_they_need(study):
    def objective(trial):
        trial.set_user_attr("gpus", sheaf.get_gpu_ids())
        return square(trial)

    optimize(study, objective, 4, num_gpus=1)
    assert {tuple(trial.user_attrs["gpus"]) for trial in study.trials} <= {(0,), (1,)}


def test_an_objective_that_raises_ends_the_study_unless_it_is_caught(study):
    def objective(trial):
        if trial.suggest_categorical("bad", [True, False]):
            raise ValueError("by design")
        return 1.0

    study.enqueue_trial({"bad": True})
    with pytest.raises(ValueError, match="by design"):
        optimize(study, objective, 10, max_concurrent=1)
    assert states(study) == [TrialState.FAIL]
    study.enqueue_trial({"bad": True})
    optimize(study, objective, 10, max_concurrent=1, catch=ValueError)
    assert len(study.trials) == 11 and TrialState.FAIL in states(study)[1:]


def test_pruned_trials_are_pruned(study):
    def objective(trial):
        trial.report(3.0, 1)
        raise optuna.TrialPruned

    optimize(study, objective, 2)
    assert states(study) == [TrialState.PRUNED] * 2 and study.trials[0].value == 3.0


def test_a_trial_whose_process_ends_fails_and_another_takes_its_place(study, tmp_path):
    def objective(trial):
        if not (tmp_path / "once").exists():
            (tmp_path / "once").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return square(trial)

    optimize(study, objective, 3, max_concurrent=1)
    assert sorted(states(study)) == [TrialState.COMPLETE] * 3 + [TrialState.FAIL]
    (tmp_path / "once").unlink()
    with pytest.raises(sheaf.exceptions.WorkerCrashedError):
        optimize(study, objective, 3, max_concurrent=1, max_retries=0)
    assert TrialState.RUNNING not in states(study)


def test_a_callback_stops_the_study(study):
    def stop_after_five(study, trial):
        if trial.number >= 4:
            study.stop()

    optimize(study, square, 1000, max_concurrent=2, callbacks=[stop_after_five])
    assert 5 <= len(study.trials) <= 7


def test_no_trial_starts_after_the_time_limit(study):
    def objective(trial):
        time.sleep(0.2)
        return square(trial)

    optimize(study, objective, timeout=1.0)
    assert 4 <= len(study.trials) < 40 and set(states(study)) == {TrialState.COMPLETE}


def test_ctrl_c_ends_the_trials(study):
    def objective(trial):
        time.sleep(1000)

    def interrupt():
        wait_until(lambda: states(study).count(TrialState.RUNNING) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        optimize(study, objective, 10, max_concurrent=2)
    thread.join()
    assert states(study) == [TrialState.FAIL] * 2


def test_a_study_in_this_process_is_refused(node):
    with pytest.raises(ValueError, match="SheafJournal"):
        optimize(optuna.create_study(), square, 1)
    with pytest.raises(ValueError, match="want the name of a journal"):
        SheafJournal("")


def test_a_silent_journal_is_an_error_in_time(node):
    journal = SheafJournal("silent", timeout_s=0.5)
    pid = sheaf.get(journal._handle().__ray_call__.remote(lambda self: os.getpid()))
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(sheaf.exceptions.GetTimeoutError):
            journal.append_logs([{}])
    finally:
        os.kill(pid, signal.SIGCONT)
    journal.delete()


def test_a_study_outlives_its_program_and_is_shared_by_nodes():
    program = """
        import optuna, sheaf, sys
        from optuna.storages import JournalStorage
        from sheaf.util.optuna import SheafJournal, optimize
        sheaf.init(sys.argv[1], log_to_driver=False)
        storage = JournalStorage(SheafJournal("kept"))
        study = optuna.create_study(storage=storage, study_name="s", load_if_exists=True)
        optimize(study, lambda trial: trial.suggest_float("x", 0, 1), 5)
    """
    with joined_cluster({"num_cpus": 1}, {"num_cpus": 1, "resources": {"other": 1}}) as cluster:
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(program), cluster.address],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
        study = optuna.load_study(study_name="s", storage=JournalStorage(SheafJournal("kept")))
        assert len(study.trials) == 10

        def objective(trial):
            trial.set_user_attr("node", sheaf.get_runtime_context().get_node_id())
            return square(trial)

        optimize(study, objective, 2, resources={"other": 1})
        optimize(study, objective, 10)
        assert len({trial.user_attrs["node"] for trial in study.trials[10:]}) == 2
