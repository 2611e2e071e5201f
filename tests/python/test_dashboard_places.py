# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where dashboards and lists of nodes are served, to whom, and over TLS or not."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, joined_cluster, wait_until
from sheaf import lifecycle
from sheaf.cluster_utils import _program
from sheaf.job_submission import JobSubmissionClient
from test_dashboard import dashboards_of, sheaf_command


def asked(url, path="/api/version", context=None, **headers):
    """(status, text)"""
    request = urllib.request.Request(url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Head:
    """A head of one node with these flags."""

    def __init__(self, directory, *flags):
        self.said = json.loads(
            sheaf_command(
                *("start", "--head", "--json", f"--dir={directory}", "--port=0", "--num-cpus=1"),
                *("--object-store-memory=64MiB", "--dashboard-port=0", *flags),
            )
        )
        self.session, self.url = self.said["session"], self.said["dashboard_url"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        sheaf_command("stop", "--address", self.session)


def refusal(directory, *flags):
    done = subprocess.run(
        [_program(), "start", "--head", f"--dir={directory}", "--port=0", *flags],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "SHEAF_STATE_IN_MEMORY": "1"},
    )
    assert done.returncode != 0
    return done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls") / "first"
    sheaf_command("cert", "init", directory, "--host", "127.0.0.1", "--host", "localhost")
    return directory


def context_of(certificates, with_own=False):
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    if with_own:
        context.load_cert_chain(certificates / "node.pem", certificates / "node.key")
    return context


def test_init_starts_a_dashboard_and_says_where():
    with sheaf.init(num_cpus=1, include_dashboard=True, dashboard_port=0) as context:
        assert context.dashboard_url.startswith("127.0.0.1:")
        assert context["webui_url"] == context.dashboard_url
        assert lifecycle.get_dashboard_url() == context.dashboard_url
        status, text = asked(f"http://{context.dashboard_url}")
        assert status == 200 and json.loads(text)["ray_version"] == "2.60.0"
    with pytest.raises(urllib.error.URLError):
        asked(f"http://{context.dashboard_url}")


def test_without_a_wish_init_starts_none():
    for wishes in ({}, {"include_dashboard": False, "dashboard_port": 0}):
        with sheaf.init(num_cpus=1, **wishes) as context:
            assert context.dashboard_url == "" == lifecycle.get_dashboard_url()
    with pytest.raises(RuntimeError):
        lifecycle.get_dashboard_url()


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"include_dashboard": "yes"}, TypeError),
        ({"dashboard_host": 1}, TypeError),
        ({"dashboard_port": "8265"}, TypeError),
        ({"dashboard_port": True}, TypeError),
        ({"dashboard_port": 70_000}, ValueError),
    ],
)
def test_wishes_that_mean_nothing_are_refused(wish, error):
    with pytest.raises(error, match=next(iter(wish))):
        sheaf.init(num_cpus=1, **wish)


def test_what_cannot_be_served_safely_is_refused_at_the_start(
    tmp_path, certificates, monkeypatch, capfd
):
    monkeypatch.setenv("SHEAF_DIR", str(tmp_path))  # There is no token.
    with pytest.raises(sheaf.exceptions.LocalRayletDiedError):
        sheaf.init(num_cpus=1, dashboard_host="0.0.0.0", dashboard_port=0)
    assert "needs a token" in capfd.readouterr().err
    assert "belong together" in refusal(tmp_path, f"--dashboard-tls-cert={certificates}/node.pem")
    wrong = [f"--dashboard-tls-cert={certificates}/node.pem", "--dashboard-tls-key=/nowhere"]
    assert "/nowhere cannot be read" in refusal(tmp_path, *wrong)
    wrong = [f"--dashboard-tls-{part}={certificates}/ca.pem" for part in ("cert", "key")]
    assert "cannot be read" in refusal(tmp_path, *wrong)


def test_https_and_certificates_that_are_replaced(tmp_path, certificates):
    place = tmp_path / "tls"
    shutil.copytree(certificates, place)
    flags = [f"--dashboard-tls-cert={place}/node.pem", f"--dashboard-tls-key={place}/node.key"]
    with Head(tmp_path / "nodes", *flags) as head:
        assert head.url.startswith("https://127.0.0.1:")
        assert asked(head.url, context=context_of(place))[0] == 200
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            asked(head.url, context=ssl.create_default_context())
        client = JobSubmissionClient(head.url, verify=str(place / "ca.pem"))
        assert client.list_jobs() == []
        with pytest.raises(ssl.SSLError):
            JobSubmissionClient(head.url)
        with sheaf.init(address=head.session) as context:
            assert f"https://{context.dashboard_url}" == head.url
        renewed = tmp_path / "renewed"
        sheaf_command("cert", "init", renewed, "--host", "127.0.0.1")
        for name in ("ca.pem", "node.pem", "node.key"):
            shutil.copy(renewed / name, place / name)

        def uses_new_ones():
            try:
                return asked(head.url, context=context_of(renewed))[0] == 200
            except (urllib.error.URLError, ConnectionError):
                return False

        wait_until(uses_new_ones)


def test_beyond_this_machine_the_clusters_certificates_count(tmp_path, certificates):
    flags = [f"--tls-dir={certificates}", "--dashboard-host=0.0.0.0"]
    with Head(tmp_path, *flags) as head:
        assert head.url.startswith(f"https://{socket.gethostname()}:")  # Others can use it.
        url = head.url.replace(socket.gethostname(), "127.0.0.1")
        assert asked(url, context=context_of(certificates))[0] == 401
        assert asked(url, context=context_of(certificates, with_own=True))[0] == 200
        token = sheaf_command("token", "--http", f"--token-file={tmp_path}/token").strip()
        right = {"Authorization": f"Bearer {token}"}
        assert asked(url, context=context_of(certificates), **right)[0] == 200
    with Head(tmp_path, f"--tls-dir={certificates}") as head:
        assert head.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        ([], (403, "--dashboard-writable (sheaf start)")),
        (["--dashboard-writable"], (404, "none")),  # There is no such job.
        (["--dashboard-read-only"], (403, "")),
    ],
)
def test_pages_beyond_this_machine_change_something_where_the_node_says_so(
    tmp_path, certificates, flags, answer
):
    with Head(tmp_path, f"--tls-dir={certificates}", "--dashboard-host=0.0.0.0", *flags) as head:
        url = head.url.replace(socket.gethostname(), "127.0.0.1")
        page = {"Origin": url, "Sec-Fetch-Site": "same-origin", "X-Sheaf": "1"}
        request = urllib.request.Request(
            f"{url}/api/jobs/none/stop", b"", {**page, "Content-Type": "application/json"}
        )
        context = context_of(certificates, with_own=True)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=WAIT_S, context=context)
        status, words = answer
        assert refused.value.code == status and words in refused.value.read().decode()


def test_a_wrong_token_slows_only_itself(tmp_path):
    with Head(tmp_path) as head:
        token = sheaf_command("token", "--http", f"--token-file={tmp_path}/token").strip()
        wrong = {"Authorization": "Bearer no"}
        codes = [asked(head.url, **wrong)[0] for _ in range(12)]
        assert codes == [403] * 10 + [429] * 2
        assert asked(head.url)[0] == 200
        assert asked(head.url, Authorization=f"Bearer {token}")[0] == 200
        assert asked(head.url, Authorization="Bearer nay")[0] == 403


def test_prometheus_finds_all_nodes_that_live(tmp_path):
    with Head(tmp_path, f"--sd-file={tmp_path}/targets.json") as head:
        file = tmp_path / "targets.json"
        wait_until(file.exists)
        assert not (pathlib.Path(head.session) / "prometheus_sd.json").exists()
        made = json.loads(file.read_text())
        assert [one["labels"]["head"] for one in made] == ["true"]
        assert made[0]["labels"]["cluster"] == head.said["address"]
        (target,) = made[0]["targets"]
        assert f"http://{target}" in head.said["metrics_url"]
        assert json.loads(asked(head.url, "/api/prometheus/sd")[1]) == made


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is wanted")
def test_another_user_reads_the_list_of_nodes_and_nothing_else_of_the_head(tmp_path):
    """As a Prometheus does: a node is strict with its files, and the service manager asks for it."""
    before = os.umask(0o077)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sd-") as folder,
            Head(tmp_path, f"--sd-file={folder}/prometheus_sd.json") as head,
        ):
            os.chmod(folder, 0o755)

            def read(path):
                return subprocess.run(
                    ["cat", path], capture_output=True, text=True, timeout=WAIT_S, user=65534
                ).stdout

            file = pathlib.Path(folder, "prometheus_sd.json")
            wait_until(file.exists)
            assert read(file) == file.read_text() != ""
            assert read(f"{head.session}/node") == ""
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is wanted")
def test_a_login_outlives_the_dashboard_that_gave_it(tmp_path):
    """Its process ends where nobody looks for a while, and another comes with the next request."""
    with Head(tmp_path) as head:
        token = sheaf_command("token", "--http", f"--token-file={tmp_path}/token").strip()

        def curl(*words):
            return subprocess.run(
                ["curl", "-s", "-i", *words],
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                user=65534,
            ).stdout

        said = curl(
            "-X", "POST", "-H", f"Authorization: Bearer {token}", f"{head.url}/api/authenticate"
        )
        cookie = re.search(r"(?i)set-cookie: ([^;]+)", said)[1]
        nodes = f"{head.url}/api/v0/nodes"
        assert curl(nodes).startswith("HTTP/1.1 401")
        assert curl("-b", cookie, nodes).startswith("HTTP/1.1 200")
        (pid,) = dashboards_of(head.session)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid not in dashboards_of(head.session))
        assert curl("-b", cookie, nodes).startswith("HTTP/1.1 200")
        assert curl("-b", cookie[:-1] + "_", nodes).startswith("HTTP/1.1 401")
        # Other tokens have other logins.
        (other := tmp_path / "other").write_text("3c" * 32)
        other.chmod(0o600)
        with Head(tmp_path / "second", f"--token-file={other}") as second:
            name = cookie.partition("=")[0].rpartition("-")[0]
            port = second.url.rpartition(":")[2]
            theirs = f"{name}-{port}={cookie.partition('=')[2]}"
            assert curl("-b", theirs, f"{second.url}/api/v0/nodes").startswith("HTTP/1.1 401")


def metrics_of(head):
    with urllib.request.urlopen(head.said["metrics_url"], timeout=WAIT_S) as answer:
        return answer.read().decode().splitlines()


def test_figures_are_served_under_rays_names_where_that_is_wished(tmp_path):
    @sheaf.remote
    def named():
        return 1

    with Head(tmp_path, "--metrics-ray-names") as head:
        with sheaf.init(address=head.session):
            sheaf.get([named.remote() for _ in range(7)], timeout=WAIT_S)

            def counted():
                lines = [line for line in metrics_of(head) if line.startswith("ray_tasks{")]
                return next((line for line in lines if "FINISHED" in line and "named" in line), "")

            wait_until(lambda: counted().endswith(" 7"))
            line = counted()
        assert f'SessionName="{head.said["address"]}"' in line and 'RayNodeType="head"' in line
        assert any(line.startswith("ray_node_cpu_count{") for line in metrics_of(head))
    with Head(tmp_path) as head:
        assert not any("ray_node" in line for line in metrics_of(head))


def test_requests_to_a_dashboard_are_counted_by_its_node(tmp_path):
    def answered(head, status):
        (line,) = (
            line
            for line in metrics_of(head)
            if line.startswith(f'sheaf_http_requests_total{{status="{status}"}}')
        )
        return float(line.split()[-1])

    with Head(tmp_path) as head:
        assert answered(head, "4xx") == 0
        for _ in range(3):
            assert asked(head.url, "/api/nothing")[0] == 404
        assert answered(head, "4xx") == 3
        assert asked(head.url)[0] == 200
        assert answered(head, "2xx") >= 2  # These questions, too.


def test_the_list_of_nodes_changes_with_them():
    with joined_cluster({"num_cpus": 1}, {"num_cpus": 1}) as made:
        file = pathlib.Path(made.head_node.session) / "prometheus_sd.json"

        def count():
            return len(json.loads(file.read_text())) if file.exists() else 0

        wait_until(lambda: count() == 2)
        os.kill(made.worker_nodes[0].os_pid, signal.SIGKILL)
        wait_until(lambda: count() == 1)
