# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""./do peer jobs: what submits jobs to Ray, and knows nothing of Sheaf, submits them to Sheaf: Ray's
client and command line, over HTTP and HTTPS, the pipes client of dagster-ray, the operators of
Airflow's google provider; and Sheaf's own operator in a real Airflow.

Each has an environment of its own in build/peers (or $SHEAF_PEERS), which is made where it is missing.
What cannot be installed is skipped, and said.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import ray_clients
from sheaf.cluster_utils import _program

HERE = pathlib.Path(__file__).resolve().parent
PEERS = pathlib.Path(os.environ.get("SHEAF_PEERS") or HERE.parents[1] / "build" / "peers")
PACKAGES = {  # By environment.
    "ray": ["ray[default]==2.60.0"],
    "dagster": ["dagster-ray==0.4.8", "ray[default]==2.60.0"],
    "airflow": ["apache-airflow", "cloudpickle", "numpy", "nanobind-backend"],
    "google": ["apache-airflow-providers-google", "ray[default]==2.60.0"],
}
LIMIT_S = 280
PACKAGE_MB = 100
LINE_MB = 10


def interpreter(name):
    """That of an environment, which is made where it is missing; None: it cannot be."""
    root = PEERS / name
    python = root / "bin" / "python"
    wanted = [package.partition("=")[0].partition("[")[0] for package in PACKAGES[name]]
    look = "import importlib.metadata as m, sys; [m.version(name) for name in sys.argv[1:]]"
    if python.exists():
        known = subprocess.run([python, "-c", look, *wanted], capture_output=True)
        if known.returncode == 0:
            return python
    print(f"installing {', '.join(PACKAGES[name])} into {root}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", root], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return python if subprocess.run([*pip, *PACKAGES[name]]).returncode == 0 else None


def run(*command, status=0, **variables):
    """What it prints, of both streams; it must end with this exit status."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        env={
            **os.environ,
            "SHEAF_STATE_IN_MEMORY": "1",
            "SHEAF_PYTHON": sys.executable,  # Of nodes, for the environments of jobs.
            **variables,
        },
    )
    if done.returncode != status:
        name = " ".join(str(word)[:80] for word in command)
        sys.exit(f"{name}: exit status {done.returncode}, want {status}\n{done.stdout}")
    return done.stdout


@contextlib.contextmanager
def head(directory, *flags):
    """A head with a dashboard; gives its URL."""
    started = run(
        *(_program(), "start", "--json", "--head", f"--dir={directory}", "--port=0"),
        *("--num-cpus=2", "--object-store-memory=128MiB", "--dashboard-port=0", *flags),
    )
    said = json.loads(started.splitlines()[-1])
    try:
        yield said["dashboard_url"]
    finally:
        run(_program(), "stop", "--address", said["session"])


CLIENT = """
import asyncio, hashlib, json, os, sys, time
from ray.job_submission import JobStatus, JobSubmissionClient

url, folder, token, verify, megabytes = *sys.argv[1:5], int(sys.argv[5])
verify = verify or True
client = JobSubmissionClient(url, verify=verify, headers={"Authorization": f"Bearer {token}"})

def ended(job):
    deadline = time.monotonic() + 120
    while not client.get_job_status(job).is_terminal():
        assert time.monotonic() < deadline, client.get_job_info(job)
        time.sleep(0.2)
    return client.get_job_info(job)

# A package of many megabytes, and what is told of the job that has it.
job = client.submit_job(
    entrypoint="python3 -c \\"import hashlib; print(hashlib.md5(open('large','rb').read()).hexdigest())\\"",
    runtime_env={"working_dir": folder}, metadata={"owner": "me"}, submission_id="with-a-package",
    entrypoint_num_cpus=1)
assert job == "with-a-package"
info = ended(job)
assert info.status == JobStatus.SUCCEEDED, info
with open(os.path.join(folder, "large"), "rb") as file:
    assert client.get_job_logs(job).strip() == hashlib.md5(file.read()).hexdigest()
assert info.metadata["owner"] == "me" and info.submission_id == job, info
assert [one.submission_id for one in client.list_jobs()].count(job) == 1

# One line of many megabytes is followed as it comes.
line = client.submit_job(entrypoint=f"head -c {megabytes << 20} /dev/zero | tr '\\\\0' x; echo; echo end")
async def tail():
    return "".join([piece async for piece in client.tail_job_logs(line)])
text = asyncio.run(tail())
assert len(text) == (megabytes << 20) + 5 and text.endswith("x\\nend\\n"), len(text)
assert ended(line).driver_exit_code == 0

# What runs is stopped, what has ended is forgotten, what is not there is an error.
long = client.submit_job(entrypoint="sleep 1000")
assert client.stop_job(long) is True
assert ended(long).status == JobStatus.STOPPED
assert client.delete_job(long) is True
for call in (client.get_job_info, client.get_job_logs, client.stop_job, client.delete_job):
    try:
        call(long)
    except RuntimeError as error:
        assert "404" in str(error), error
    else:
        raise AssertionError(call)
try:
    client.submit_job(entrypoint="true", submission_id=job)
except RuntimeError as error:
    assert "Please use a different submission_id" in str(error), error
failed = client.submit_job(entrypoint="echo why; exit 3")
info = ended(failed)
assert info.status == JobStatus.FAILED and info.driver_exit_code == 3 and "why" in info.message, info
assert client.get_version() == "4" and client.get_address() == url

# A wrong token is refused, whoever asks.
try:
    JobSubmissionClient(url, verify=verify, headers={"Authorization": "Bearer no"}).list_jobs()
except Exception as error:  # Ray's AuthenticationError.
    assert "The token is wrong" in str(error), error
else:
    raise AssertionError("a wrong token was taken")
print("every method of Ray's client")
"""


def with_rays_client(python, url, folder, token, authority=""):
    """Every method of Ray's client, and its command line."""
    print(run(python, "-c", CLIENT, url, folder, token, authority, LINE_MB), end="")
    ray = [python.parent / "ray", "job"]
    where = ["--address", url, *(["--verify", authority] if authority else [])]
    said = run(*ray, "submit", *where, "--submission-id=cli", "--", "echo", "hello there")
    assert "hello there" in said and "succeeded" in said, said
    run(*ray, "submit", *where, "--", "false", status=1)
    assert "cli" in run(*ray, "list", *where)
    assert "succeeded" in run(*ray, "status", *where, "cli")
    assert "hello there" in run(*ray, "logs", *where, "cli")
    run(*ray, "submit", *where, "--no-wait", "--submission-id=long", "--", "sleep", "1000")
    assert "stopped" in run(*ray, "stop", *where, "long")
    run(*ray, "delete", *where, "cli")
    print("ray job submit, list, status, logs, stop, delete")


def rays_client(directory):
    python = interpreter("ray")
    if python is None:
        return "Ray cannot be installed"
    folder = directory / "package"
    folder.mkdir()
    (folder / "large").write_bytes(os.urandom(PACKAGE_MB << 20))
    tls = directory / "tls"
    run(_program(), "cert", "init", tls, "--host", "127.0.0.1")
    for flags, authority in (
        ((), ""),
        ((f"--dashboard-tls-cert={tls}/node.pem", f"--dashboard-tls-key={tls}/node.key"), "ca.pem"),
    ):
        nodes = directory / f"nodes-{len(flags)}"
        with head(nodes, *flags) as url:
            token = run(_program(), "token", "--http", f"--token-file={nodes}/token").strip()
            with_rays_client(python, url, folder, token, authority and str(tls / authority))
    return None


DAGSTER = """
import sys
import dagster as dg
from dagster_ray import PipesRayJobClient

url, script = sys.argv[1:]

@dg.asset
def numbers(context: dg.AssetExecutionContext, pipes: PipesRayJobClient):
    return pipes.run(
        context=context, submit_job_params={"entrypoint": f"{sys.executable} {script}"}
    ).get_materialize_result()

client = PipesRayJobClient(address=url, poll_interval=0.2)
result = dg.materialize([numbers], resources={"pipes": client})
assert result.success
(event,) = result.asset_materializations_for_node("numbers")
assert event.metadata["answer"].value == 42, event.metadata
print("dagster-ray's pipes client")
"""
DAGSTER_JOB = """
from dagster_pipes import open_dagster_pipes, PipesDefaultMessageWriter, PipesEnvVarParamsLoader
with open_dagster_pipes() as pipes:
    pipes.report_asset_materialization(metadata={"answer": 42})
"""


def dagsters_client(directory):
    python = interpreter("dagster")
    if python is None:
        return "dagster-ray cannot be installed"
    script = directory / "job.py"
    script.write_text(DAGSTER_JOB)
    home = directory / "dagster"
    home.mkdir()
    with head(directory / "nodes") as url:
        print(run(python, "-c", DAGSTER, url, script, DAGSTER_HOME=str(home)).splitlines()[-1])
    return None


GOOGLE = """
import sys, types
from airflow.providers.google.cloud.operators import ray

url = sys.argv[1]

def run(kind, **options):
    task = kind(task_id="task", cluster_address=url, **options)
    ti = types.SimpleNamespace(xcom_push=lambda **_: None)
    return task.execute({"ti": ti, "task_instance": ti, "task": task})

job = run(ray.RaySubmitJobOperator, entrypoint="echo hello", wait_for_job_done=True, get_job_logs=True)
assert "SUCCEEDED" in str(run(ray.RayGetJobInfoOperator, job_id=job))
assert job in str(run(ray.RayListJobsOperator))
# The operator says no more of a job that has failed.
failed = run(ray.RaySubmitJobOperator, entrypoint="exit 3", wait_for_job_done=True)
assert "FAILED" in str(run(ray.RayGetJobInfoOperator, job_id=failed))
long = run(ray.RaySubmitJobOperator, entrypoint="sleep 1000")
run(ray.RayStopJobOperator, job_id=long)
run(ray.RayDeleteJobOperator, job_id=job)
print("the operators of Airflow's google provider")
"""


def googles_operators(directory):
    python = interpreter("google")
    if python is None:
        return "Airflow's google provider cannot be installed"
    look = "import airflow.providers.google.cloud.operators.ray as o; o.RaySubmitJobOperator"
    if subprocess.run([python, "-c", look], capture_output=True).returncode:
        return "this version of the google provider has no operators for Ray"
    home = directory / "airflow"
    home.mkdir()
    with head(directory / "nodes") as url:
        where = {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": "google-cloud-platform://",
        }
        print(run(python, "-c", GOOGLE, url, **where).splitlines()[-1])
    return None


def own_operator(directory):
    python = interpreter("airflow")
    if python is None:
        return "Airflow cannot be installed"
    home = directory / "airflow"
    home.mkdir()
    with head(directory / "nodes") as url:
        said = run(python, HERE / "airflow_operator.py", url, AIRFLOW_HOME=str(home))
        print(said.splitlines()[-1])
    return None


def main(arguments):
    """Runs all, or those that are named."""
    checks = {
        "state": lambda directory: ray_clients.main(),
        "ray": rays_client,
        "airflow": own_operator,
        "dagster": dagsters_client,
        "google": googles_operators,
    }
    skipped = {}
    for name in arguments or checks:
        if name not in checks:
            sys.exit(f"./do peer jobs {name}: there are {', '.join(checks)}")
        with tempfile.TemporaryDirectory() as directory:
            why = checks[name](pathlib.Path(directory))
        if why:
            skipped[name] = why
    for name, why in skipped.items():
        print(f"skipped: {name}: {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
