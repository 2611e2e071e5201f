# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Jobs over HTTP, on real processes: what becomes of a command, whatever of the cluster is killed."""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import zipfile

import job_kills
import pytest
from conftest import WAIT_S, is_running, wait_until
from sheaf._internal import job_server
from sheaf.cluster_utils import Cluster, _program
from sheaf.job_submission import JobStatus, JobSubmissionClient
from test_head_state import gcs_of


@contextlib.contextmanager
def dashboard_of(session, *flags):
    """A dashboard of that node; gives its process and its URL."""
    process = subprocess.Popen(
        [_program(), "dashboard", f"--address={session}", *(flags or ["--port=0"])],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        yield process, next(word for word in line.split() if word.startswith("http"))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "num_gpus": 1, "object_store_memory": 128 << 20},
    )
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def url(cluster):
    with dashboard_of(cluster.head_node.session) as (_, where):
        yield where


@pytest.fixture
def client(url):
    return JobSubmissionClient(url)


def ended(client, job_id, seconds=WAIT_S):
    def look():
        info = client.get_job_info(job_id)
        return info if info.status.is_terminal() else None

    return wait_until(look, lambda: str(client.get_job_info(job_id)), seconds)


def running(client, job_id):
    wait_until(lambda: client.get_job_status(job_id) == JobStatus.RUNNING)


def refusal(call):
    with pytest.raises(RuntimeError) as error:
        call()
    return str(error.value)


def python(code):
    return f'{sys.executable} -c "{code}"'


def test_a_command_runs_and_its_output_is_kept(client):
    job = client.submit_job(
        entrypoint='echo "$GREETING, $WHO"; echo bad >&2',
        runtime_env={"env_vars": {"GREETING": "hello", "WHO": "you"}},
        metadata={"owner": "me"},
    )
    assert job.startswith("raysubmit_") and len(job) == 26
    info = ended(client, job)
    assert info.status == JobStatus.SUCCEEDED, info
    assert info.message == "Job finished successfully."
    assert info.driver_exit_code == 0
    assert info.metadata == {"owner": "me"}
    assert info.runtime_env == {"env_vars": {"GREETING": "hello", "WHO": "you"}}
    assert info.start_time <= info.end_time
    assert client.get_job_logs(job) == "hello, you\nbad\n"
    assert job in [one.submission_id for one in client.list_jobs()]


def test_a_command_that_fails_says_how(client):
    job = client.submit_job(entrypoint="echo why; exit 3")
    info = ended(client, job)
    assert info.status == JobStatus.FAILED
    assert info.driver_exit_code == 3
    assert info.error_type == "JOB_ENTRYPOINT_COMMAND_ERROR"
    assert "failed with exit code 3" in info.message and info.message.endswith("\nwhy")
    job = client.submit_job(entrypoint="kill -9 $$")
    assert ended(client, job).driver_exit_code == -9


def test_a_driver_of_the_command_joins_the_cluster_and_is_the_jobs(client):
    code = (
        "import ray, os; ray.init(); "
        "print(ray.get(ray.remote(lambda: os.environ['MARK']).remote())); "
        "print(ray.get_runtime_context().get_job_id())"
    )
    job = client.submit_job(
        entrypoint=python(code), runtime_env={"env_vars": {"MARK": "of the job"}}
    )
    info = ended(client, job)
    logs = client.get_job_logs(job)
    assert info.status == JobStatus.SUCCEEDED, logs
    assert logs.splitlines()[0] == "of the job"
    assert info.job_id == logs.splitlines()[1]
    assert info.driver_info.id == info.job_id
    assert client.get_job_info(info.job_id).submission_id == job  # By the driver's id as well.


def test_stop_ends_all_processes(client, tmp_path):
    pids = tmp_path / "pids"
    job = client.submit_job(
        entrypoint=f"(setsid sleep 1000 & echo $! > {pids}; trap '' TERM; sleep 1000)",
        runtime_env={"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "0.5"}},
    )
    wait_until(lambda: pids.exists() and pids.read_text().strip())
    running(client, job)
    assert client.stop_job(job)
    info = ended(client, job)
    assert info.status == JobStatus.STOPPED
    assert info.message == "Job was intentionally stopped."
    assert not is_running(int(pids.read_text()))
    assert not client.stop_job(job)
    assert client.delete_job(job)
    assert "404" in refusal(lambda: client.get_job_info(job))


def test_what_a_command_leaves_behind_goes_with_it(client, tmp_path):
    pids = tmp_path / "pids"
    job = client.submit_job(entrypoint=f"setsid sleep 1000 & echo $! > {pids}")
    assert ended(client, job).status == JobStatus.SUCCEEDED
    assert not is_running(int(pids.read_text()))


def test_of_two_submitters_with_one_id_one_wins(url):
    outcomes = []

    def submit():
        try:
            client = JobSubmissionClient(url)
            outcomes.append(client.submit_job(entrypoint="true", submission_id="same"))
        except RuntimeError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("same") == 1, outcomes
    refused = [outcome for outcome in outcomes if outcome != "same"]
    assert all("Please use a different submission_id" in words for words in refused)
    assert all("status code 500" in words for words in refused)


def test_refusals_have_the_codes_and_words_of_ray(client, url):
    assert "404: Job none does not exist" in refusal(lambda: client.get_job_info("none"))
    for call in (client.stop_job, client.delete_job, client.get_job_logs):
        assert "404: Job none does not exist" in refusal(lambda call=call: call("none"))
    for wrong in ("a b", ".", ".."):
        assert "400" in refusal(lambda: client.submit_job(entrypoint="true", submission_id=wrong))
    assert "does not exist" in refusal(lambda: client.get_job_info(""))
    assert "400" in refusal(lambda: client.submit_job(entrypoint=7))
    job = client.submit_job(entrypoint="sleep 1000")
    running(client, job)
    assert "non-terminal state" in refusal(lambda: client.delete_job(job))
    assert "status code 500" in refusal(lambda: client.delete_job(job))
    client.stop_job(job)
    for path in ("/api/version", "/api/version/"):
        with urllib.request.urlopen(url + path) as answer:
            assert json.load(answer)["ray_version"] == "2.60.0"


def test_a_job_that_wants_too_much_waits_and_says_for_what(client):
    job = client.submit_job(entrypoint="true", entrypoint_num_gpus=8)
    info = client.get_job_info(job)
    assert info.status == JobStatus.PENDING
    assert "waits for" in info.message and "GPU" in info.message
    assert client.stop_job(job)
    assert client.get_job_status(job) == JobStatus.STOPPED
    job = client.submit_job(entrypoint="echo $CUDA_VISIBLE_DEVICES", entrypoint_num_gpus=1)
    assert ended(client, job).status == JobStatus.SUCCEEDED
    assert client.get_job_logs(job) == "0\n"


def test_jobs_that_do_not_start_in_time_fail(client):
    job = client.submit_job(
        entrypoint="true",
        entrypoint_resources={"none": 1},
        runtime_env={"env_vars": {"RAY_JOB_START_TIMEOUT_SECONDS": "0.3"}},
    )
    info = ended(client, job)
    assert info.status == JobStatus.FAILED
    assert info.error_type == "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"


def test_a_working_directory_and_modules_travel(client, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "main.py").write_text(
        "import ray, helper, extra.part\n"
        "ray.init()\n"
        "@ray.remote\n"
        "def there():\n"
        "    return open('data').read() + helper.WORD + extra.part.WORD\n"
        "print(ray.get(there.remote()))\n"
    )
    (folder / "helper.py").write_text("WORD = ' helper'\n")
    (folder / "data").write_text("data")
    module = tmp_path / "extra"
    module.mkdir()
    (module / "part.py").write_text("WORD = ' part'\n")
    job = client.submit_job(
        entrypoint=f"{sys.executable} main.py",
        runtime_env={"working_dir": str(folder), "py_modules": [str(module)]},
    )
    info = ended(client, job)
    assert info.status == JobStatus.SUCCEEDED, info
    assert client.get_job_logs(job).splitlines()[-1] == "data helper part"
    assert info.runtime_env["working_dir"].startswith("gcs://")


def test_an_environment_that_cannot_be_made_fails_the_job(client):
    job = client.submit_job(
        entrypoint="true", runtime_env={"working_dir": "gcs://_ray_pkg_none.zip"}
    )
    info = ended(client, job)
    assert info.status == JobStatus.FAILED
    assert info.error_type == "RUNTIME_ENV_SETUP_FAILURE"
    assert "_ray_pkg_none.zip" in info.message


def test_a_package_does_not_leave_its_directory(client, url, tmp_path):
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../../escaped", "x")
    request = urllib.request.Request(
        f"{url}/api/packages/gcs/_ray_pkg_bad.zip", archive.read_bytes(), method="PUT"
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
    job = client.submit_job(
        entrypoint="true", runtime_env={"working_dir": "gcs://_ray_pkg_bad.zip"}
    )
    assert "outside of itself" in ended(client, job).message
    bad = urllib.request.Request(f"{url}/api/packages/gcs/a.jar", b"x", method="PUT")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(bad)
    assert error.value.code == 400


async def followed(client, job):
    return [piece async for piece in client.tail_job_logs(job)]


def test_logs_are_followed_to_the_end(client):
    job = client.submit_job(
        entrypoint=python("import time\nfor i in range(20): print(i, 'é'); time.sleep(0.02)")
    )
    assert "".join(asyncio.run(followed(client, job))) == "".join(f"{i} é\n" for i in range(20))


def test_following_survives_the_end_of_the_dashboard(cluster, tmp_path):
    mark = tmp_path / "go"
    with dashboard_of(cluster.head_node.session) as (process, url):
        port = url.rsplit(":", 1)[1]
        client = JobSubmissionClient(url)
        job = client.submit_job(
            entrypoint=f"echo first; while [ ! -e {mark} ]; do sleep 0.05; done; echo last"
        )
        pieces = []

        def follow():
            pieces.extend(asyncio.run(followed(client, job)))

        thread = threading.Thread(target=follow)
        thread.start()
        wait_until(lambda: client.get_job_logs(job) == "first\n")
        process.kill()
        process.wait()
        mark.write_text("")
        with dashboard_of(cluster.head_node.session, f"--port={port}"):
            thread.join(WAIT_S)
        assert "".join(pieces) == "first\nlast\n"


def test_a_job_that_prints_nothing_for_long_is_followed(client, monkeypatch, tmp_path):
    monkeypatch.setattr(job_server, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(job_server, "_FOLLOW_S", 0.3)
    mark = tmp_path / "go"
    job = client.submit_job(
        entrypoint=f"echo first; while [ ! -e {mark} ]; do sleep 0.05; done; echo last"
    )
    asked = []
    connect = client._server._connect

    def counted():
        asked.append(None)
        if len(asked) == 4:  # Three reads have waited in vain.
            mark.write_text("")
        return connect()

    monkeypatch.setattr(client._server, "_connect", counted)
    assert "".join(asyncio.run(followed(client, job))) == "first\nlast\n"
    assert len(asked) >= 4


def test_pages_of_the_list(client, url):
    ids = [client.submit_job(entrypoint="true") for _ in range(3)]
    with urllib.request.urlopen(f"{url}/api/jobs/?limit=2") as answer:
        page = json.load(answer)
    assert [row["submission_id"] for row in page] == ids[:0:-1]
    with urllib.request.urlopen(f"{url}/api/jobs?limit=1&after={ids[1]}") as answer:
        assert [row["submission_id"] for row in json.load(answer)] == [ids[0]]


def test_the_command_line(cluster, url, tmp_path):
    def run(*arguments):
        return subprocess.run(
            [_program(), "job", arguments[0], "--address", url, *arguments[1:]],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "SHEAF_PYTHON": sys.executable},
        )

    done = run("submit", "--submission-id", "by_hand", "--", "sh", "-c", "echo out; exit 2")
    assert done.returncode == 1, done.stderr
    assert "Job 'by_hand' submitted successfully" in done.stdout
    assert "\nout\n" in done.stdout and "Job 'by_hand' failed" in done.stdout
    assert run("logs", "by_hand").stdout == "out\n"
    assert "by_hand" in run("list").stdout
    again = run("submit", "--submission-id", "by_hand", "--", "true")
    assert again.returncode == 1 and "use a different submission_id.\n" in again.stderr
    nobody = run("list", f"--address={tmp_path}")
    assert nobody.returncode == 3 and "no node runs" in nobody.stderr, nobody.stderr
    assert "failed" in run("status", "by_hand").stdout
    assert run("delete", "by_hand").returncode == 0
    assert run("status", "by_hand").returncode == 1
    assert run("submit", "--no-wait", "--submission-id", "x2", "--", "sleep", "100").returncode == 0
    assert "was stopped" in run("stop", "x2").stdout


def test_a_client_finds_the_node_of_this_machine(cluster):
    client = JobSubmissionClient(cluster.head_node.session)
    assert ended(client, client.submit_job(entrypoint="true")).status == JobStatus.SUCCEEDED


def test_jobs_survive_the_control_store(cluster, client, tmp_path):
    mark = tmp_path / "go"
    running_job = client.submit_job(
        entrypoint=f"while [ ! -e {mark} ]; do sleep 0.05; done; echo done"
    )
    waiting = client.submit_job(entrypoint="true", entrypoint_resources={"none": 1})
    running(client, running_job)
    pid = gcs_of(cluster.head_node)
    os.kill(pid, signal.SIGKILL)
    during = client.submit_job(entrypoint="true", submission_id="during")
    wait_until(lambda: gcs_of(cluster.head_node) not in (0, pid))
    mark.write_text("")
    assert ended(client, running_job).status == JobStatus.SUCCEEDED
    assert ended(client, during).status == JobStatus.SUCCEEDED
    assert client.get_job_status(waiting) == JobStatus.PENDING
    client.stop_job(waiting)


def test_the_guard_of_a_command_may_be_killed(client, tmp_path):
    pids = tmp_path / "pids"
    job = client.submit_job(entrypoint=f"echo $PPID > {pids}; exec sleep 1000")
    wait_until(lambda: pids.exists() and pids.read_text().strip())
    running(client, job)
    os.kill(int(pids.read_text()), signal.SIGKILL)
    info = ended(client, job)
    assert info.status == JobStatus.FAILED
    assert "guard" in info.message


def test_a_node_that_is_killed_takes_its_jobs_with_it(tmp_path):
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 64 << 20}
    )
    try:
        other = made.add_node(resources={"there": 1}, num_cpus=1, object_store_memory=64 << 20)
        with dashboard_of(made.head_node.session) as (_, url):
            client = JobSubmissionClient(url)
            pids = tmp_path / "pids"
            job = client.submit_job(
                entrypoint=f"setsid sleep 1000 & echo $! > {pids}; sleep 1000",
                entrypoint_resources={"there": 1},
            )
            wait_until(lambda: pids.exists() and pids.read_text().strip())
            running(client, job)
            began = time.monotonic()
            os.kill(other.os_pid, signal.SIGKILL)
            wait_until(lambda: not is_running(int(pids.read_text())), "it outlives its node")
            assert time.monotonic() - began < 15
            info = ended(client, job)
            assert info.status == JobStatus.FAILED
            assert info.error_type == "JOB_SUPERVISOR_ACTOR_DIED"
            assert "died while the job ran" in info.message
    finally:
        made.shutdown()


def test_jobs_end_as_they_should_whatever_is_killed(tmp_path):
    """The long form: ./do soak job_kills."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    job_kills.run(kills=4, seed=seed, folder=tmp_path)


def test_nothing_of_a_job_is_left_in_the_session(cluster, client):
    job = client.submit_job(
        entrypoint="true", runtime_env={"working_dir": os.path.dirname(__file__)}
    )
    ended(client, job)
    scratch = pathlib.Path(cluster.head_node.session) / "entrypoints"
    assert not scratch.exists() or not list(scratch.iterdir())
