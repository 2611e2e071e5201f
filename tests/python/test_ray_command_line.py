# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Ray's command line, as people and scripts type it: the program sheaf, called by the name `ray`."""

import json
import os
import re
import subprocess
import sys

import pytest
import sheaf
from conftest import WAIT_S, is_running, wait_until
from sheaf._internal import fields_file
from sheaf._ray.scripts import rows
from sheaf.cluster_utils import _program
from test_dashboard import Head, sheaf_command


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    """Runs `ray ARGS`; gives what subprocess.run gives."""
    program = tmp_path_factory.mktemp("bin") / "ray"
    program.symlink_to(_program())

    def run(*arguments, **environment):
        return subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            timeout=2 * WAIT_S,
            env={
                **os.environ,
                "SHEAF_PYTHON": sys.executable,
                "SHEAF_STATE_IN_MEMORY": "1",
                **environment,
            },
        )

    return run


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    made = Head(tmp_path_factory.mktemp("head"))
    yield made
    sheaf_command("stop", "--address", made.session)


@pytest.fixture
def driver(head):
    sheaf.init(address=head.session)
    yield
    sheaf.shutdown()


@pytest.fixture
def said(ray, head):
    """What a command that succeeds prints, asked of the head."""

    def run(*arguments):
        done = ray(*arguments, RAY_ADDRESS=head.url)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@sheaf.remote(num_cpus=0)
class Speaker:
    def say(self, text):
        print(text, flush=True)
        return os.getpid()


@sheaf.remote
def square(number):
    return number * number


def test_a_head_is_started_with_rays_flags_and_stopped(ray, tmp_path):
    labels = tmp_path / "labels.json"
    labels.write_text('{"zone": "a", "disk": "slow"}')
    done = ray(
        *("start", "--head", "--port=0", "--num-cpus=3", "--object-store-memory", "67108864"),
        *(f"--temp-dir={tmp_path}", "--dashboard-port=0", "--include-dashboard=True"),
        *("--dashboard-host=localhost", "--metrics-export-port=0", "--memory=1000000000"),
        *('--resources={"pear": 0.5, "apple": 2}', "--labels=disk=fast"),
        *(f"--labels-file={labels}", "--node-manager-port=1234", "--disable-usage-stats"),
        *("--ray-client-server-port", "10001", "--log-color=false", "-v"),
    )
    assert done.returncode == 0, done.stderr
    assert (
        "without effect in Sheaf: --node-manager-port, --ray-client-server-port, "
        "--disable-usage-stats" in done.stderr
    )
    (node,) = json.loads(sheaf_command("list", "nodes", "--json", "--address", tmp_path))["nodes"]
    assert node["total"]["apple"] == 2 and node["total"]["pear"] == 0.5
    assert node["total"]["CPU"] == 3 and node["total"]["memory"] == 1_000_000_000
    assert node["labels"]["disk"] == "fast" and node["labels"]["zone"] == "a"
    done = ray("stop", "--grace-period", "20", SHEAF_ADDRESS=str(tmp_path))
    assert done.returncode == 0 and "Stopped the node" in done.stdout
    assert ray("stop", "-f", SHEAF_ADDRESS=str(tmp_path)).returncode == 0  # There is none any more.


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["start", "--head", "--no-such-flag"], "--no-such-flag"),
        (["start", "--head", "--num-cpu=1"], "--num-cpu"),  # No abbreviations.
        (["start", "--head", "--resources=apple"], "not valid JSON"),
        (["start", "--head", '--resources={"a": "b"}'], "want a number"),
        (["start", "--head", "--include-dashboard=maybe"], "want true or false"),
        (["list", "things"], "invalid choice: 'things'"),
        (["list", "actors", "--filter", "state"], "want KEY=VALUE"),
        (["list", "actors", "--timeout", "0"], "above 0"),
        (["drain-node", "--reason-message=x"], "--reason"),
        (["kill-actor"], "--name"),
        (["logs", "actor"], "--id or --pid"),
        (["up", "cluster.yaml"], "not in Sheaf; start nodes with `sheaf start`"),
        (["fly"], "there is no command 'fly'"),
    ],
)
def test_a_command_line_that_means_nothing_is_refused(ray, words, why):
    done = ray(*words)
    assert done.returncode == 2
    assert why in done.stderr


def test_help_and_version_are_there(ray):
    assert "drain-node" in ray("--help").stdout
    assert "--labels-file" in ray("start", "--help").stdout
    assert ray("--version").stdout.startswith("ray, version 2.60.0")
    done = subprocess.run(
        [_program(), "ray", "--logging-level", "debug", "--version"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "SHEAF_PYTHON": sys.executable},
    )
    assert done.stdout.startswith("ray, version 2.60.0"), done.stderr


def test_listings_in_all_forms(head, driver, said):
    speaker = Speaker.options(name="Annie", lifetime="detached").remote()
    pid = sheaf.get(speaker.say.remote("x"))
    (row,) = json.loads(said("list", "actors", "--format=json", "-f", f"pid={pid}"))
    assert row["name"] == "Annie" and row["state"] == "ALIVE"
    assert json.loads(said("list", "actors", "--format=json", "-f", f"pid!={pid}")) == []
    table = said("list", "actors", "--filter", f"pid={pid}")
    assert "Total: 1" in table and "ACTOR_ID" in table and "Annie" in table
    assert "No resource in the cluster" in said("list", "actors", "-f", "name=Nobody")
    text = said("list", "nodes", "--detail")
    assert text.startswith("---\n- node_id:") and text.rstrip().endswith("...")
    assert "is_head_node: true" in text and 'object_store_memory: "64.000 MiB"' in text
    assert row["actor_id"] in said("get", "actors", row["actor_id"])
    assert "not found" in said("get", "nodes", "00ff")
    sheaf.get([square.remote(i) for i in range(3)])
    wait_until(lambda: "FINISHED: 3" in said("summary", "tasks"))
    assert "Speaker" in said("summary", "actors")
    assert "total_objects" in said("summary", "objects")
    sheaf.kill(speaker)


def test_a_wrong_filter_says_which_there_are(ray, head):
    done = ray("list", "actors", "-f", "nothing=1", f"--address={head.url}")
    assert done.returncode == 1
    assert "nothing" in done.stderr and "actor_id" in done.stderr


def test_objects_by_their_holders(head, driver, said):
    kept = sheaf.put(bytes(1 << 20))
    text = said("memory", "--units=KB")
    assert kept.hex() in text and "1024." in text
    assert kept.hex() not in said("memory", "--stats-only")
    assert kept.hex() in said("memory", "--group-by=STACK_TRACE", "--sort-by=PID", "-n", "100")


def test_logs_of_an_actor_a_worker_and_a_file(head, driver, said, ray):
    speaker = Speaker.remote()
    pid = sheaf.get(speaker.say.remote("first\nsecond"))
    wait_until(lambda: "second" in said("logs", "worker", "--pid", str(pid)))
    assert said("logs", "actor", "--id", speaker._actor_id.hex(), "--tail=1") == "second\n"
    assert said("logs", "actor", "--pid", str(pid), "--err") == ""
    names = re.findall(r"worker-\S+\.out", said("logs"))
    (name,) = [name for name in names if "second" in said("logs", name, "--tail=-1")]
    assert "second" in said("logs", "cluster", f"{name[:-1]}?")
    assert ray("logs", "no-such-*", f"--address={head.url}").returncode == 1
    done = ray("logs", "worker", "--pid", "1", f"--address={head.url}")
    assert done.returncode == 1 and "no worker with pid 1" in done.stderr


def test_a_log_is_followed(head, driver):
    speaker = Speaker.remote()
    pid = sheaf.get(speaker.say.remote("one"))
    process = subprocess.Popen(
        [_program(), "ray", "logs", "worker", f"--pid={pid}", "-f", f"--address={head.url}"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SHEAF_PYTHON": sys.executable},
    )
    try:
        assert process.stdout.readline() == "one\n"
        sheaf.get(speaker.say.remote("two"))
        assert process.stdout.readline() == "two\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_status_is_in_rays_form(head, said):
    text = said("status")
    assert text.startswith("======== Autoscaler status: ")
    for part in ("Node status", "Active:", "Pending:", "Total Usage:", "Pending Demands:"):
        assert part in text
    assert "0.0/2.0 CPU" in text and "64.00MiB object_store_memory" in text
    assert " Id: " in said("status", "-v")


def test_jobs_are_submitted_and_listed(head, said):
    assert "succeeded" in said("job", "submit", "--submission-id=ray-cli", "--", "echo", "hello")
    assert "ray-cli" in said("job", "list")


def test_the_health_of_a_head(ray, head):
    assert ray("health-check", f"--address={head.session}").returncode == 0
    (node,) = json.loads(sheaf_command("list", "nodes", "--json", "--address", head.session))[
        "nodes"
    ]
    assert ray("health-check", "--skip-version-check", "--address", node["address"]).returncode == 0
    # What answers there is no node.
    dashboard = head.url.partition("://")[2]
    assert ray("health-check", f"--address={dashboard}").returncode == 1
    assert ray("health-check", "--address=127.0.0.1:1").returncode == 1


def test_a_named_actor_is_ended(head, ray):
    with sheaf.init(address=head.session, namespace="there"):
        pid = sheaf.get(Speaker.options(name="Bob", lifetime="detached").remote().say.remote("x"))
    where = [f"--address={head.session}", "--namespace=there"]
    done = ray("kill-actor", "--name=Nobody", *where)
    assert done.returncode == 1 and "No named actor found: Nobody" in done.stderr
    assert is_running(pid)
    assert ray("kill-actor", "--name=Bob", *where).returncode == 0
    wait_until(lambda: not is_running(pid))
    with sheaf.init(address=head.session, namespace="there"):
        pid = sheaf.get(Speaker.options(name="Bo", lifetime="detached").remote().say.remote("x"))
    assert ray("kill-actor", "--name=Bo", "--force", "--no-restart", *where).returncode == 0
    wait_until(lambda: not is_running(pid))


def test_a_timeline_is_written(head, ray):
    done = ray("timeline", f"--address={head.session}")
    assert done.returncode == 0, done.stderr
    path = done.stdout.split("written to ")[1].split("\n")[0].rstrip(".")
    with open(path) as file:
        assert isinstance(json.load(file), list)
    os.remove(path)


def test_the_token_of_clients_is_printed(ray, tmp_path):
    assert ray("get-auth-token", RAY_AUTH_TOKEN="abc").stdout == "abc"
    file = tmp_path / "token"
    file.write_text("def\n")
    assert ray("get-auth-token", "--generate", RAY_AUTH_TOKEN_PATH=str(file)).stdout == "def"


def test_a_node_is_drained_by_its_id(tmp_path, ray):
    made = Head(tmp_path)
    try:
        where = f"--address={made.session}"
        (node,) = json.loads(sheaf_command("list", "nodes", "--json", where))["nodes"]
        why = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot"]
        assert ray("drain-node", where, "--node-id=zz", *why).returncode == 1
        assert ray("drain-node", where, f"--node-id={node['node']:056x}", *why).returncode == 0

        def state():
            rows = json.loads(sheaf_command("list", "nodes", "--json", where))["nodes"]
            return rows[0]["state"]

        wait_until(lambda: state().startswith("DRAIN"))
    finally:
        sheaf_command("stop", "--address", made.session)


def test_yaml_is_read_as_what_was_written(tmp_path):
    yaml = pytest.importorskip("yaml")
    value = [
        {"id": "0001", "n": 1, "none": None, "yes": "no", "text": 'a: "b"\n- c', "e": {}},
        {"deep": {"list": [1, [2, {"x": "ä"}], []]}, "true": True, "float": 0.5},
        {"big": 1e300, "odd": "\u2028 \x07 \x85 \U0001f600"},
    ]
    assert yaml.safe_load(rows.yaml(value)) == value


def test_a_file_of_fields_is_json_or_yaml(tmp_path):
    file = tmp_path / "fields"
    file.write_text('{"a": 1}')
    assert fields_file.read(str(file)) == {"a": 1}
    file.write_text("[1]")
    with pytest.raises(ValueError, match="want an object"):
        fields_file.read(str(file))
