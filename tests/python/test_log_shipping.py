# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Logs as JSON for a log store: what the daemons write, what workers and jobs print, and whether a
shipper gets each line once."""

import json
import logging
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import sheaf
from conftest import WAIT_S, wait_until
from sheaf.cluster_utils import _program
from test_dashboard import sheaf_command

# A record as ecs-logging 2.3.0 writes it.
_ECS = {
    "@timestamp": "2026-11-26T13:50:22.005Z",
    "log.level": "warning",
    "message": "x y",
    "ecs.version": "1.6.0",
    "process": {"pid": 21200},
}
_NAMES = [*_ECS, "host", "service", "event", "sheaf"]


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    sheaf.shutdown()
    os.environ["SHEAF_NOTHING"] = "1"  # Of which a daemon warns.
    said = json.loads(
        sheaf_command(
            *("start", "--json", "--head", f"--dir={tmp_path_factory.mktemp('head')}"),
            *("--port=0", "--num-cpus=2", "--object-store-memory=64MiB", "--dashboard-port=0"),
            "--log-format=json",
        )
    )
    del os.environ["SHEAF_NOTHING"]
    sheaf.init(address=said["session"], log_to_driver=False)
    yield pathlib.Path(said["session"])
    sheaf.shutdown()
    sheaf_command("stop", "--address", said["session"])


def records(path):
    """All lines of a file, each of which has to be an object. One whose end is not written yet is
    none, as for a shipper."""
    found = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    assert all(isinstance(record, dict) for record in found)
    return found


def printed(session, wanted):
    """The records of workers of which `wanted` is true, as soon as there are some."""
    events = session / "logs" / "events.ndjson"
    return wait_until(
        lambda: events.exists() and [record for record in records(events) if wanted(record)],
        lambda: events.read_text() if events.exists() else "no events",
    )


@sheaf.remote(num_cpus=0)
class Writer:
    def write(self, data, fd=1):
        while data:
            data = data[os.write(fd, data) :]
        return os.getpid()


def test_what_a_worker_prints_has_the_names_of_the_schema(session):
    writer = Writer.remote()
    pid = sheaf.get(writer.write.remote(b"hello ELK\n"))
    sheaf.get(writer.write.remote(b"bad ELK\n", fd=2))
    (record,) = printed(session, lambda record: record["message"] == "hello ELK")
    assert list(record) == _NAMES
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["@timestamp"])
    assert record["log.level"] == "info"
    assert record["process"] == {"pid": pid}
    assert record["host"] == {"name": os.uname().nodename}
    assert record["service"] == {"name": "sheaf"}
    assert record["event"] == {"dataset": "sheaf.worker"}
    assert record["sheaf"]["job"] == sheaf.get_runtime_context().get_job_id()
    assert record["sheaf"]["node"] == 1 and record["sheaf"]["stream"] == "out"
    assert re.fullmatch(r"1\.\d+", record["sheaf"]["worker"])
    assert re.fullmatch(r"[0-9a-f]{32}", record["sheaf"]["cluster"])
    (record,) = printed(session, lambda record: record["message"] == "bad ELK")
    assert (record["log.level"], record["sheaf"]["stream"]) == ("error", "err")


def test_daemons_write_the_same_names(session):
    found = wait_until(lambda: records(session / "logs" / "node.log"))
    assert {record["event"]["dataset"] for record in found} == {"sheaf.raylet"}
    assert all(list(record) == _NAMES[:-1] for record in found)
    assert "warning" in {record["log.level"] for record in found}
    assert any("SHEAF_NOTHING" in record["message"] for record in found)


def test_the_names_are_those_of_ecs_logging(session):
    sheaf.get(Writer.remote().write.remote(b"like theirs\n"))
    (ours,) = printed(session, lambda record: record["message"] == "like theirs")
    theirs = _ECS
    try:
        import ecs_logging

        made = logging.makeLogRecord({"msg": "x y", "levelname": "WARNING", "levelno": 30})
        theirs = json.loads(ecs_logging.StdlibFormatter().format(made))
    except ImportError:
        pass
    assert list(theirs)[:4] == list(ours)[:4]
    assert ours["ecs.version"] == theirs["ecs.version"]
    assert len(ours["@timestamp"]) == len(theirs["@timestamp"])
    assert set(ours["process"]) <= set(theirs["process"])


def test_hostile_lines_are_records_too(session):
    lines = [
        b"nul \0 byte",
        b"\xff\xfe broken \xc3",
        b"\x1b[31mred\x1b[0m",
        b'"}, "sheaf": {',
        b"long " + b"x" * (1 << 20),
        b'{"message":"lifted","log.level":"warning","n":[1,{"a":null}]}',
        b'{"message":"not whole"',
        b"the last",
    ]
    sheaf.get(Writer.remote().write.remote(b"\n".join(lines) + b"\n"))
    printed(session, lambda record: record["message"] == "the last")
    messages = {record["message"]: record for record in records(session / "logs" / "events.ndjson")}
    for wanted in ("nul \0 byte", "�� broken �", "\x1b[31mred\x1b[0m", '"}, "sheaf": {'):
        assert list(messages[wanted]) == _NAMES
    assert '{"message":"not whole"' in messages
    assert messages["lifted"]["log.level"] == "warning"
    assert messages["lifted"]["n"] == [1, {"a": None}]
    assert messages["lifted"]["event"] == {"dataset": "sheaf.worker"}
    assert ("long " + "x" * (1 << 20))[: 1 << 20] in messages  # And the rest, as another one.


def test_what_a_job_prints_is_there_too(session):
    dashboard = (session / "dashboard").read_text().strip()
    from sheaf.job_submission import JobSubmissionClient

    job = JobSubmissionClient(dashboard).submit_job(entrypoint="echo from a job; sleep 0.1")
    (record,) = printed(session, lambda record: record["message"] == "from a job")
    assert record["event"] == {"dataset": "sheaf.job"}
    assert record["sheaf"]["submission"] == job


RSYSLOG = """
module(load="imfile" mode="inotify")
input(type="imfile" file="{events}" tag="sheaf" ruleset="sheaf" addMetadata="off" escapeLF="off")
template(name="line" type="string" string="%msg%\\n")
ruleset(name="sheaf") {{ action(type="omfile" file="{out}" template="line") }}
"""


@pytest.mark.skipif(shutil.which("rsyslogd") is None, reason="rsyslog is not installed")
def test_rsyslog_ships_each_line_once_over_rotations(session, tmp_path):
    """Beyond the size at which events.ndjson gets another name."""
    out = tmp_path / "shipped.ndjson"
    conf = tmp_path / "rsyslog.conf"
    conf.write_text(
        f'global(workDirectory="{tmp_path}" maxMessageSize="4m")\n'
        + RSYSLOG.format(events=session / "logs" / "events.ndjson", out=out)
    )
    count = 100_000
    process = subprocess.Popen(
        ["rsyslogd", "-n", "-f", conf, "-i", tmp_path / "pid"], stderr=subprocess.DEVNULL
    )
    try:
        writer = Writer.remote()
        for begin in range(0, count, 1_000):
            text = "".join(f"ship {i} {'x' * 700}\n" for i in range(begin, begin + 1_000))
            sheaf.get(writer.write.remote(text.encode()))
        last = f"ship {count - 1} ".encode()
        wait_until(lambda: out.exists() and last in out.read_bytes()[-100_000:], seconds=2 * WAIT_S)
    finally:
        process.terminate()
        process.wait(WAIT_S)
    shipped = [
        int(record["message"].split()[1])
        for record in records(out)
        if record["message"].startswith("ship ")
    ]
    assert (session / "logs" / "events.ndjson.1").exists()
    assert len(shipped) == len(set(shipped)) and sorted(shipped) == list(range(count))


def test_another_format_is_refused(tmp_path):
    done = subprocess.run(
        [_program(), "start", "--head", f"--dir={tmp_path}", "--log-format=xml"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 2 and "xml" in done.stderr
    done = subprocess.run(
        [_program(), "start", "--head", f"--dir={tmp_path}"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "SHEAF_LOG_FORMAT": "xml", "SHEAF_STATE_IN_MEMORY": "1"},
    )
    assert done.returncode == 1 and "SHEAF_LOG_FORMAT='xml'" in done.stderr
