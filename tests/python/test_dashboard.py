# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a head serves over HTTP: as Ray's clients ask for it, and only to whom it may."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import sheaf
from conftest import WAIT_S, is_running, wait_until
from sheaf.cluster_utils import _program
from sheaf.job_submission import JobSubmissionClient


def sheaf_command(*arguments):
    done = subprocess.run(
        [_program(), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SHEAF_STATE_IN_MEMORY": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def dashboards_of(session):
    """The pids of a head's dashboard processes."""
    mark = session.encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"dashboard" in words and mark in words:
            found.append(int(name))
    return found


# What ray.util.state of Ray 2.60 sends, as it was recorded, and how many columns it takes.
_DETAIL = "limit=7&timeout=24&detail=True"
_REST = "exclude_driver=True&server_timeout_multiplier=0.8"
_ALIVE = "filter_keys=state&filter_predicates=%3D&filter_values=ALIVE"
RAY_ASKS = {
    f"actors?{_DETAIL}&{_ALIVE}&{_REST}": 20,
    f"nodes?{_DETAIL}&{_ALIVE}&{_REST}": 10,
    f"tasks?{_DETAIL}&{_REST}": 28,
    f"objects?{_DETAIL}&{_REST}": 9,
    f"workers?{_DETAIL}&{_REST}": 14,
    f"jobs?{_DETAIL}&{_REST}": 15,
    f"placement_groups?{_DETAIL}&{_REST}": 9,
    "tasks/summarize?timeout=30": None,
    "actors/summarize?timeout=30": None,
    "objects/summarize?timeout=30": None,
    "actors?timeout=24&server_timeout_multiplier=0.8&filter_keys=actor_id&filter_predicates=%3D"
    "&filter_values=aa&detail=True": 20,
}


class Head:
    def __init__(self, directory, *options):
        said = json.loads(
            sheaf_command(
                "start",
                "--json",
                "--head",
                f"--dir={directory}",
                "--port=0",
                "--num-cpus=2",
                "--object-store-memory=64MiB",
                "--dashboard-port=0",
                *options,
            )
        )
        self.session, self.url, self.pid = said["session"], said["dashboard_url"], said["os_pid"]

    def ask(self, path, method="GET", **headers):
        """(status, text)"""
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def listing(self, path):
        status, text = self.ask("/api/v0/" + path)
        assert status == 200, text
        return json.loads(text)["data"]["result"]

    def dashboards(self):
        return dashboards_of(self.session)


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


@sheaf.remote(num_cpus=0)
class Speaker:
    def say(self, text):
        print(text, flush=True)
        return os.getpid()


def test_a_node_that_nobody_looks_at_has_no_dashboard_process(head):
    assert head.dashboards() == []
    status, text = head.ask("/api/version")
    assert status == 200
    assert json.loads(text)["session_name"] == os.path.basename(head.session)
    assert len(head.dashboards()) == 1


def test_a_driver_knows_where_the_dashboard_is(head):
    with sheaf.init(address=head.session) as context:
        assert f"http://{context.dashboard_url}" == head.url


def test_listings_say_what_the_cluster_has(head, driver):
    speaker = Speaker.options(name="Annie").remote()
    pid = sheaf.get(speaker.say.remote("hello there"))
    (row,) = [row for row in head.listing("actors?detail=1")["result"] if row["pid"] == pid]
    assert (row["class_name"], row["state"], row["name"]) == ("Speaker", "ALIVE", "Annie")
    nodes = head.listing("nodes")
    assert nodes["total"] == 1
    assert nodes["result"][0]["resources_total"]["CPU"] == 2
    assert pid in [row["pid"] for row in head.listing("workers")["result"]]
    chosen = head.listing("jobs?filter_keys=status&filter_predicates==&filter_values=running")
    assert chosen["result"][0]["driver_info"]["pid"] == str(os.getpid())
    summary = head.listing("actors/summarize")["result"]["node_id_to_summary"]["cluster"]
    assert summary["summary"]["Speaker"]["state_counts"]["ALIVE"] >= 1
    assert summary["total_actors"] == head.listing("actors")["total"]


def test_the_page_is_there_and_its_tables_are_those_of_the_command_line(head, driver):
    status, text = head.ask("/")
    assert status == 200
    assert '<script type="module" src="/assets/app.js">' in text
    assert head.ask("/no/such/page") == (200, text)
    speaker = Speaker.options(name="Page").remote()
    sheaf.get(speaker.say.remote("hello"))
    for kind in ("nodes", "actors", "jobs", "groups", "objects"):
        listed = json.loads(sheaf_command("list", kind, "--json", "--address", head.session))[kind]
        status, text = head.ask(f"/api/sheaf/{kind}?limit=1000")
        assert (status, json.loads(text)["total"]) == (200, len(listed)), text
        keys = ("node", "actor_id", "job", "group_id", "object_id")
        names = [[row.get(key) for key in keys] for row in json.loads(text)["rows"]]
        assert sorted(names, key=str) == sorted(
            ([row.get(key) for key in keys] for row in listed), key=str
        )
    status, text = head.ask("/api/sheaf/actors?filter=name%3Dpage&filter=state!%3DDEAD")
    assert [row["class_name"] for row in json.loads(text)["rows"]] == ["Speaker"]


@pytest.mark.parametrize("kind", ["tasks", "objects", "actors", "workers"])
def test_the_command_line_chooses_and_orders_rows_as_the_page_does(head, driver, kind):
    """The same words give the same rows, and a limit is for the rows that fit."""

    @sheaf.remote(num_cpus=0)
    def listed(i):
        return i

    speakers = [Speaker.options(name=f"Listed{i}").remote() for i in range(3)]
    sheaf.get([speaker.say.remote("hello") for speaker in speakers])
    sheaf.get([listed.remote(i) for i in range(20)])
    waiting = [listed.options(num_gpus=9, name="waits").remote(i) for i in range(3)]
    kept = [sheaf.put(b"x" * size) for size in (300_000, 100_000, 200_000)]
    words = {
        "tasks": (["filter=name=listed"], "only", "", 7),
        "objects": (["filter=where=store", "filter=size_bytes!=null"], "", "-size_bytes", 2),
        "actors": (["filter=name~LISTED", "filter=state!=DEAD"], "", "-name", 2),
        "workers": (["filter=running~Speaker"], "", "os_pid", 1),
    }
    filters, ended, order, limit = words[kind]
    query = [("limit", limit), *(word.split("=", 1) for word in filters)]
    line = [f"--limit={limit}"]
    for _, value in query[1:]:
        line += ["--filter", value]
    if order:
        query.append(("order", order))
        line.append(f"--order={order}")
    if ended:
        query.append(("ended", ended))
        line.append(f"--ended={ended}")

    def rows_of_both():
        status, text = head.ask(f"/api/sheaf/{kind}?{urllib.parse.urlencode(query)}")
        assert status == 200, text
        said = sheaf_command("list", kind, *line, "--json", "--address", head.session)
        assert json.loads(said)["truncated"] == (json.loads(text)["next"] is not None)
        return json.loads(text)["rows"], json.loads(said)[kind]

    wait_until(lambda: len(rows_of_both()[0]) == limit, "the page has not all of these rows")
    page, listing = rows_of_both()
    assert listing == page
    del waiting, kept


def test_a_command_line_that_names_no_key_says_which_there_are(head):
    def refused(*words):
        done = subprocess.run(
            [_program(), "list", *words, "--address", head.session],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2, done
        return done.stderr

    assert "there are actor_id, class_name" in refused("actors", "--filter", "color=red")
    assert "want KEY=VALUE" in refused("actors", "--filter", "name")
    assert "want true, false or only" in refused("tasks", "--ended=perhaps")
    assert "take no order" in refused("tasks", "--order", "name")
    assert "want one of" in refused("tasks", "--filter", "state=DONE")


@pytest.mark.parametrize("asked", RAY_ASKS)
def test_what_ray_asks_is_answered_with_its_columns(head, driver, asked):
    group = sheaf.util.placement_group([{"CPU": 0.1}], name="group")
    speaker = Speaker.remote()
    sheaf.get([group.ready(), speaker.say.remote("here")])
    waits = sheaf.remote(num_gpus=7)(print).remote()  # For ever.
    kept = sheaf.put(b"x" * 100_000)
    found = head.listing(asked)
    assert found["partial_failure_warning"] == ""
    if RAY_ASKS[asked] is None:
        assert found["result"]["node_id_to_summary"]["cluster"]["summary"]
    else:
        assert found["result"] or "aa" in asked
        assert len(found["result"]) <= 7
        assert {len(row) for row in found["result"]} <= {RAY_ASKS[asked]}
    sheaf.util.remove_placement_group(group)
    del kept, speaker, waits


def _infeasible(head):
    """What the nodes' metrics say, by kind."""
    said = json.loads(sheaf_command("status", "--json", "--address", head.session))
    with urllib.request.urlopen(said["metrics_url"], timeout=WAIT_S) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith("sheaf_scheduler_infeasible")]
    kinds = [re.search('kind="([a-z]+)"', line) for line in found]
    return {
        kind[1] if kind else "all": int(line.rpartition(" ")[2])
        for kind, line in zip(kinds, found, strict=True)
    }


def test_what_the_head_places_itself_waits_in_sight(head, driver):
    """Detached actors, submitted jobs and groups are in no raylet's queue."""

    def demand():
        status, text = head.ask("/api/sheaf/demand")
        assert status == 200, text
        return json.loads(text)

    def status():
        return sheaf_command("status", "--address", head.session)

    assert demand()["shapes"] == []
    assert "nothing waits for resources" in status()
    actor = Speaker.options(name="Waits", lifetime="detached", num_gpus=3).remote()
    jobs = JobSubmissionClient(head.url)
    jobs.submit_job(entrypoint="true", submission_id="waits", entrypoint_num_gpus=4)
    group = sheaf.util.placement_group([{"CPU": 512}])
    wait_until(lambda: len(demand()["shapes"]) == 2, lambda: f"{demand()} {status()}")
    wait_until(lambda: demand()["gangs"], lambda: f"{demand()}")
    shapes = {shape["resources"]["GPU"]: shape for shape in demand()["shapes"]}
    assert sorted(shapes) == [3, 4]
    assert all(shape["infeasible"] and shape["count"] == 1 for shape in shapes.values())
    assert "detached actor Speaker: no node has" in shapes[3]["words"]
    assert "job waits: no node has" in shapes[4]["words"]
    report = json.loads(head.ask("/api/cluster_status")[1])["data"]["clusterStatus"]
    asked = report["loadMetricsReport"]["resourceDemand"]
    assert sorted(amounts["GPU"] for amounts, count in asked) == [3, 4]
    assert "job waits: no node has" in status()
    wanted = {"lease": 0, "group": 1, "actor": 1, "submission": 1}
    wait_until(lambda: _infeasible(head) == wanted, lambda: f"{_infeasible(head)}")

    sheaf.kill(actor)
    jobs.stop_job("waits")
    sheaf.util.remove_placement_group(group)
    wait_until(lambda: demand()["shapes"] == demand()["gangs"] == [], lambda: f"{demand()}")
    assert "nothing waits for resources" in status()
    wait_until(lambda: not any(_infeasible(head).values()), lambda: f"{_infeasible(head)}")


@pytest.mark.parametrize("lifetime", [None, "detached"])
def test_an_actor_is_killed_for_good(head, driver, lifetime):
    options = {"name": "Victim", "max_restarts": -1, "lifetime": lifetime}
    speaker = Speaker.options(**options).remote()
    pid = sheaf.get(speaker.say.remote("hello"))
    named = "/api/sheaf/actors?filter=name%3DVictim&filter=state%3DALIVE"
    (row,) = json.loads(head.ask(named)[1])["rows"]
    kill = f"/api/sheaf/actors/{row['actor_id']}/kill"
    own = {"Origin": head.url, "Sec-Fetch-Site": "same-origin"}
    assert head.ask(kill, "POST", **own)[0] == 403  # As a form could.
    assert (
        head.ask(kill, "POST", **own | {"Origin": "http://evil.example", "X-Sheaf": "1"})[0] == 403
    )
    assert head.ask(kill.replace(row["actor_id"], "7" * 32), "POST")[0] == 404
    assert is_running(pid)
    assert head.ask(kill, "POST", **own, **{"X-Sheaf": "1"})[0] == 200
    wait_until(lambda: not is_running(pid))
    with pytest.raises(sheaf.exceptions.ActorDiedError, match="kill"):
        sheaf.get(speaker.say.remote("no more"), timeout=WAIT_S)
    assert head.ask(kill, "POST")[0] == 200  # Again changes nothing.
    wait_until(lambda: json.loads(head.ask(named)[1])["total"] == 0)
    another = Speaker.options(**options).remote()
    sheaf.get(another.say.remote("another one of that name"))
    sheaf.kill(another)


def test_logs_are_read_and_followed(head, driver):
    speaker = Speaker.remote()
    pid = sheaf.get(speaker.say.remote("first words"))
    status, text = head.ask(f"/api/v0/logs/file?pid={pid}&lines=-1")
    assert status == 200
    assert "first words\n" in text
    with urllib.request.urlopen(
        f"{head.url}/api/v0/logs/stream?pid={pid}&lines=1", timeout=WAIT_S
    ) as answer:
        assert "first words" in answer.readline().decode()
        sheaf.get(speaker.say.remote("and more"))
        assert "and more" in answer.readline().decode()


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_dashboard_that_was_lost_is_replaced_without_being_asked(head, how):
    head.ask("/api/version")
    (pid,) = head.dashboards()
    os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    seen = []
    wait_until(lambda: seen.append(head.dashboards()) or seen[-1] not in ([pid], []))
    assert all(len(pids) <= 1 for pids in seen)
    assert head.ask("/api/version")[0] == 200
    log = pathlib.Path(head.session, "logs", "node.log").read_text()
    assert "the dashboard has ended: signal 9; it is started again in " in log
    assert how == "killed" or f"the dashboard (pid {pid}) has been stopped for 5 s" in log


def test_pages_from_elsewhere_and_other_names_of_this_machine_are_refused(head):
    assert head.ask("/api/v0/nodes", Host="evil.example")[0] == 403
    assert head.ask("/api/v0/nodes", Origin="http://evil.example")[0] == 403
    assert head.ask("/api/v0/nodes", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert head.ask("/api/v0/nodes", Authorization="Bearer wrong")[0] == 403
    assert head.ask("/api/healthz", Host="evil.example") == (200, "success")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is wanted")
def test_another_user_of_this_machine_needs_the_token(head):
    done = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"{head.url}/api/v0/nodes"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        user=65534,
    )
    assert done.stdout == "401"


def test_viewers_of_a_log_that_do_not_read_cost_the_dashboard_little(head):
    """Forty of them, and a log whose bytes are six times as long where they are shown: it has to hold
    what it has taken of the log and not sent."""
    jobs = JobSubmissionClient(head.url)
    zeros = 16_000_000  # Fewer than a log has before it is moved away.
    jobs.submit_job(entrypoint=f"head -c {zeros} /dev/zero; sleep 1000", submission_id="zeros")
    path = "/api/jobs/zeros/logs"
    host, port = head.url.removeprefix("http://").split(":")

    def viewer():
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        one.settimeout(WAIT_S)
        one.connect((host, int(port)))
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        begin = one.recv(1000)  # A node answers so many of these at once.
        assert begin.startswith(b"HTTP/1.1 200 OK"), begin
        return one

    log = pathlib.Path(head.session, "logs", "job-driver-zeros.log")
    wait_until(lambda: log.exists() and log.stat().st_size == zeros)
    (pid,) = dashboards_of(head.session)

    def data():
        """Bytes that the dashboard has of what its limit counts."""
        assert dashboards_of(head.session) == [pid], "it has died"
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"VmData:\s+(\d+) kB", text)[1]) * 1024

    seen = [data()]
    viewers = [viewer() for _ in range(40)]  # Of 48 that may be at a time.
    try:

        def holds_what_it_will():
            time.sleep(0.5)
            seen.append(data())
            return abs(seen[-1] - seen[-2]) < 1_000_000

        wait_until(holds_what_it_will, lambda: f"it takes more: {seen}")
        assert seen[-1] < 128 << 20, f"of the 256 MiB that it may have: {seen}"
        assert head.ask("/api/version")[0] == 200
        # None of them was ended, either.
        assert all(one.recv(1) for one in viewers)
    finally:
        for one in viewers:
            one.close()
        jobs.stop_job("zeros")


def test_a_package_that_is_too_large_is_refused_before_it_is_sent(head):
    host, port = head.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as sender:
        sender.sendall(
            b"PUT /api/packages/gcs/large.zip HTTP/1.1\r\nHost: localhost\r\n"
            b"Expect: 100-continue\r\nContent-Length: 268435457\r\n\r\n"
        )
        said = sender.recv(4096)
    assert said.startswith(b"HTTP/1.1 413 "), said


def test_the_dashboard_ends_with_its_node(tmp_path):
    made = Head(tmp_path)
    assert made.ask("/api/version")[0] == 200
    (pid,) = made.dashboards()
    os.kill(made.pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid))


def test_a_dashboard_that_keeps_dying_is_started_later_and_later(tmp_path):
    made = Head(tmp_path)
    try:
        for _ in range(3):
            wait_until(lambda: made.ask("/api/version")[0] == 200)
            (pid,) = made.dashboards()
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not made.dashboards())
        wait_until(lambda: made.ask("/api/version")[0] == 503)
        assert made.dashboards() == []
        assert "too often" in made.ask("/api/version")[1]
        wait_until(lambda: made.ask("/api/version")[0] == 200)
        log = pathlib.Path(made.session, "logs", "node.log").read_text()
        assert [f"again in {pause} s" in log for pause in (1, 2, 4, 8)] == [True, True, True, False]
    finally:
        sheaf_command("stop", "--address", made.session)


def test_a_dashboard_that_cannot_start_says_so_once_and_once_that_it_works_again(tmp_path):
    (token := tmp_path / "token").write_text("1f" * 32)
    token.chmod(0o600)
    made = Head(tmp_path / "head", f"--token-file={token}")
    place = urllib.parse.urlsplit(made.url)
    logs = pathlib.Path(made.session, "logs")

    def said(file, words):
        return [line for line in (logs / file).read_text().splitlines() if words in line]

    try:
        (logs / "dashboard.err").touch()
        token.write_text("too short")
        with socket.create_connection((place.hostname, place.port), timeout=WAIT_S):
            wait_until(lambda: len(said("dashboard.err", "64 hexadecimal digits")) == 2)
            (line,) = said("node.log", "the dashboard has ended")
            assert f"has ended: exit status 2: sheaf: {token}: a token has" in line
            token.write_text("2e" * 32)
            assert made.ask("/api/version")[0] == 200
        wait_until(lambda: len(said("node.log", "the dashboard works again")) == 1)
        assert len(said("node.log", "the dashboard has ended")) == 1
    finally:
        sheaf_command("stop", "--address", made.session)
