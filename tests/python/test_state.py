# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the cluster says of itself: the state API, the timeline, progress bars, notebook views, the
fixtures of sheaf.testing."""

import io
import json
import os
import subprocess
import sys
import time

import pytest
import sheaf
from conftest import WAIT_S, wait_until
from sheaf.util import state
from sheaf.util.progress import progress, wait_all
from sheaf.util.state.exception import RayStateApiException

pytestmark = pytest.mark.usefixtures("node")


@sheaf.remote
def nap(seconds):
    time.sleep(seconds)
    return os.getpid()


@sheaf.remote
def square(x):
    return x * x


@sheaf.remote(num_cpus=0)
class Counter:
    def wait(self, seconds):
        time.sleep(seconds)


def test_calls_are_listed_while_they_run_and_wait():
    running, waiting = nap.remote(1), nap.options(resources={"slot": 100}).remote(0)
    rows = wait_until(
        lambda: (
            {row.state for row in state.list_tasks()} >= {"RUNNING", "PENDING_NODE_ASSIGNMENT"}
            and state.list_tasks()
        )
    )
    row = next(row for row in rows if row.state == "PENDING_NODE_ASSIGNMENT")
    assert row.name == "nap" and "slot" in row.waits_for
    assert state.get_task(row.task_id).name == "nap" and state.get_task("no such") is None
    assert state.summarize_tasks()["cluster"]["summary"]["nap"]["state_counts"]["RUNNING"] >= 1
    assert state.list_tasks(filters=[("state", "=", "RUNNING")], limit=1)[0].state == "RUNNING"
    with pytest.raises(ValueError, match="operator"):
        state.list_tasks(filters=[("state", "~", "x")])
    for wrong in ("state=RUNNING", ["state=RUNNING"], [("state", "=")], ("state", "=", "RUNNING")):
        with pytest.raises(ValueError, match="want a list of"):
            state.list_tasks(filters=wrong)
    sheaf.cancel(waiting)
    sheaf.get(running, timeout=WAIT_S)


def test_calls_that_ended_are_listed_with_their_times_and_errors():
    @sheaf.remote(max_retries=0)
    def end_listed(how):
        if how == "raise":
            raise ValueError("because")
        if how == "die":
            os._exit(3)
        time.sleep(0.02)

    before = time.time() * 1000
    refs = [end_listed.remote(how) for how in ("well", "raise", "die")]
    sheaf.wait(refs, num_returns=3, timeout=WAIT_S)
    chosen = [("name", "=", "end_listed")]
    rows = wait_until(
        lambda: (
            len(ended := state.list_tasks(filters=chosen)) == 3
            and all(row.end_time_ms for row in ended)
            and ended
        )
    )
    rows = {row.task_id: row for row in rows}
    well, raised, died = (rows[ref.task_id().hex()[:32]] for ref in refs)
    assert well.state == "FINISHED" and well.error_type is None and well.type == "NORMAL_TASK"
    assert 20 <= well.end_time_ms - well.start_time_ms < WAIT_S * 1000
    assert before - 1000 < well.creation_time_ms <= well.start_time_ms + 10
    assert raised.state == died.state == "FAILED"
    assert raised.error_type == "TASK_EXECUTION_EXCEPTION"
    assert raised.error_message.endswith("ValueError: because")
    assert died.error_type == "WORKER_DIED" and "status 3" in died.error_message
    failed = state.list_tasks(filters=[*chosen, ("state", "=", "FAILED")])
    assert {row.task_id for row in failed} == {raised.task_id, died.task_id}
    assert state.get_task(died.task_id).state == "FAILED"
    counts = state.summarize_tasks()["cluster"]["summary"]["end_listed"]["state_counts"]
    assert counts == {"FINISHED": 1, "FAILED": 2}


def test_an_actor_that_ends_is_no_failed_constructor_and_its_call_of_itself_tells_where_it_ran():
    @sheaf.remote(num_cpus=0)
    class Ending:
        async def inner(self):
            return os.getpid()

        async def outer(self):
            return await sheaf.get_runtime_context().current_actor.inner.remote()

    def ending(**chosen):
        return [
            row
            for row in state.list_tasks(limit=10_000)
            if row.name.startswith("Ending") and row.end_time_ms and chosen.items() <= row.items()
        ]

    actor = Ending.remote()
    pid = sheaf.get(actor.outer.remote(), timeout=WAIT_S)
    assert [row.worker_pid for row in wait_until(lambda: ending(name="Ending.inner"))] == [pid]
    sheaf.kill(actor)
    with pytest.raises(sheaf.exceptions.ActorDiedError):
        sheaf.get(actor.inner.options(name="Ending.late").remote(), timeout=WAIT_S)
    wait_until(lambda: ending(name="Ending.late"))
    (creation,) = ending(type="ACTOR_CREATION_TASK")
    assert creation.state == "FINISHED" and creation.error_type is None
    summary = state.summarize_tasks()["cluster"]["summary"]
    assert summary[creation.name]["state_counts"] == {"FINISHED": 1}


def test_an_attempt_that_a_workers_death_ended_is_listed(tmp_path):
    @sheaf.remote(max_retries=1)
    def die_once(path):
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(3)

    sheaf.get(die_once.remote(str(tmp_path / "tried")), timeout=WAIT_S)
    rows = wait_until(
        lambda: (
            len(ended := state.list_tasks(filters=[("name", "=", "die_once")])) == 2
            and all(row.end_time_ms for row in ended)
            and ended
        )
    )
    assert {(row.attempt_number, row.state, row.error_type) for row in rows} == {
        (0, "FAILED", "WORKER_DIED"),
        (1, "FINISHED", None),
    }


def test_quick_calls_are_counted_exactly_and_sampled_in_listings():
    @sheaf.remote
    def quick():
        pass

    sheaf.get([quick.remote() for _ in range(3000)], timeout=WAIT_S)

    def counted():
        return state.summarize_tasks()["cluster"]["summary"]["quick"]["state_counts"]

    wait_until(lambda: counted() == {"FINISHED": 3000})
    rows = state.list_tasks(filters=[("name", "=", "quick")], limit=10_000)
    # Whenever the rate of a worker's calls changes, its last sample may stand for calls that are
    # sampled anew, or never came: on a busy machine that is often.
    assert 0 < len(rows) <= 3000 and abs(sum(row.weight for row in rows) - 3000) <= 1000


def test_a_summary_counts_calls_that_wait():
    @sheaf.remote(resources={"slot": 100})
    def wait_to_be_counted():
        pass

    refs = [wait_to_be_counted.remote() for _ in range(12_000)]
    begin = time.monotonic()
    counts = state.summarize_tasks()["cluster"]["summary"]["wait_to_be_counted"]["state_counts"]
    assert counts == {"PENDING_NODE_ASSIGNMENT": 12_000}
    assert time.monotonic() - begin < WAIT_S
    for ref in refs:
        sheaf.cancel(ref)


def test_a_filter_of_a_field_that_there_is_none_of_is_refused():
    with pytest.raises(RayStateApiException, match="waits_for"):
        state.list_tasks(filters=[("no such field", "=", 1)])


ASKS = """
import sheaf
from sheaf.util import state

for ask in (state.list_actors, state.summarize_actors, state.list_nodes):
    try:
        print(len(ask()))
    except ConnectionError as error:
        print("Could not find any running Ray instance" in str(error))
print(sheaf.is_initialized())
"""


def test_a_process_without_a_session_asks_the_cluster_that_runs_and_starts_none(tmp_path):
    kept = Counter.remote()
    sheaf.get(kept.wait.remote(0), timeout=WAIT_S)
    here = {"SHEAF_ADDRESS": sheaf.get_runtime_context().gcs_address}
    nowhere = {"SHEAF_DIR": str(tmp_path / "none")}  # Where sessions are found.
    said = [
        subprocess.run(
            [sys.executable, "-c", ASKS],
            env={**os.environ, **where},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        ).stdout.split()
        for where in (here, nowhere)
    ]
    assert int(said[0][0]) >= 1 and said[0][1:] == ["1", "1", "False"]
    assert said[1] == ["True", "True", "True", "False"]


def test_objects_workers_jobs_and_actors_are_listed():
    ref, actor = sheaf.put(b"x" * 100_000), Counter.options(name="counted").remote()
    sheaf.get(actor.wait.remote(0), timeout=WAIT_S)
    (row,) = state.get_objects(ref.hex())
    assert row.object_size >= 100_000 and row.local_references >= 1
    assert row.age_s == 0 and not row.may_leak  # It is new.
    assert state.summarize_objects()["cluster"]["total_objects"] >= 1
    worker = wait_until(
        lambda: next((row for row in state.list_workers() if row.state == "ACTOR"), None)
    )
    assert state.get_worker(worker.worker_id).pid == worker.pid
    inside = sheaf.get(
        actor.__ray_call__.remote(lambda self: sheaf.get_runtime_context().get_worker_id()),
        timeout=WAIT_S,
    )
    assert state.get_worker(inside).state == "ACTOR"
    (job,) = (row for row in state.list_jobs() if row.driver_pid == os.getpid())
    assert job.status == "RUNNING" and state.get_job(job.job_id).driver_pid == os.getpid()
    wait_until(
        lambda: (
            state.summarize_actors()["cluster"]["summary"]
            .get("Counter", {"state_counts": {}})["state_counts"]
            .get("ALIVE")
            == 1
        )
    )
    assert any(row.name == "counted" for row in state.list_actors())


def test_the_timeline_has_begin_and_end_of_calls(tmp_path):
    pid = sheaf.get(nap.remote(0.05), timeout=WAIT_S)
    path = tmp_path / "trace.json"

    def naps():
        assert sheaf.timeline(str(path)) is None
        return [
            event
            for event in json.loads(path.read_text())
            if event["ph"] == "X" and event["name"] == "nap" and event["args"]["worker_pid"] == pid
        ]

    wait_until(naps)  # A worker records a call behind its reply.
    assert 50_000 <= naps()[-1]["dur"] < WAIT_S * 1e6
    assert sheaf.timeline()


def test_the_timeline_of_perfetto_has_the_same_calls(tmp_path):
    @sheaf.remote(name='a "name" \u00e4')
    def outer():
        return sheaf.get(nap.remote(0.01))

    sheaf.get(outer.remote(), timeout=WAIT_S)
    path = tmp_path / "trace.perfetto-trace"

    def written():
        assert sheaf.timeline(str(path), format="perfetto") is None
        return path.read_bytes()

    wait_until(lambda: 'a "name" \u00e4'.encode() in written() and b"nap" in path.read_bytes())
    assert sheaf.timeline(format="perfetto")[:1] == b"\x0a"  # The first packet of a Trace.
    with pytest.raises(ValueError, match="format 'svg': want json or perfetto"):
        sheaf.timeline(format="svg")


def test_calls_that_fail_are_in_the_timeline():
    @sheaf.remote
    def fail_for_the_timeline():
        raise KeyError

    with pytest.raises(KeyError):
        sheaf.get(fail_for_the_timeline.remote(), timeout=WAIT_S)
    wait_until(
        lambda: [event for event in sheaf.timeline() if event["name"] == "fail_for_the_timeline"]
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_gives_the_values_and_draws_a_bar():
    terminal, plain = Terminal(), io.StringIO()
    assert list(progress([square.remote(i) for i in range(50)], "squares", stream=terminal)) == [
        i * i for i in range(50)
    ]
    assert (
        terminal.getvalue().startswith("\rsquares:")
        and "100%" in terminal.getvalue()
        and "50/50" in terminal.getvalue()
    )
    assert sorted(progress([square.remote(i) for i in range(50)], ordered=False, stream=plain)) == [
        i * i for i in range(50)
    ]
    assert plain.getvalue().count("\n") == 1 and "\r" not in plain.getvalue()
    refs = [square.remote(i) for i in range(3)]
    assert wait_all(refs, stream=plain) == refs
    assert list(progress([], stream=plain)) == []


def test_notebook_views_say_what_things_are():
    ref, actor = sheaf.put(1), Counter.remote()
    assert ref.hex() in ref._repr_html_() and "ready" in ref._repr_html_()
    sheaf.get(actor.wait.remote(0), timeout=WAIT_S)
    wait_until(lambda: "ALIVE" in actor._repr_html_())
    assert "Actor Counter" in actor._repr_html_()


def test_the_fixtures_of_the_package_start_a_node(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["sheaf.testing"]\n')
    (tmp_path / "test_it.py").write_text(
        "def test_it(sheaf_cluster):\n"
        "    assert sheaf_cluster.get(sheaf_cluster.put(1)) == 1\n"
        "    assert sheaf_cluster.cluster_resources()['CPU'] == 2\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * WAIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
