# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""`sheaf dump`: one file for a bug report, with what is in it and what must not be."""

import json
import os
import pathlib
import subprocess
import tarfile

import pytest
import sheaf
from conftest import WAIT_S
from sheaf.cluster_utils import _program

SECRET = "s3cr3t-value-that-nobody-may-see"


def command(*arguments, code=0, **variables):
    done = subprocess.run(
        [_program(), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, **variables},
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    said = json.loads(
        command(
            *("start", "--head", "--json", "--port=0", "--num-cpus=2", "--include-dashboard=false"),
            *("--object-store-memory=64MiB", f"--dir={tmp_path_factory.mktemp('head')}"),
            MY_SERVICE_PASSWORD=SECRET,
            MY_NAME="nothing of yours",
        )
    )
    sheaf.init(address=said["session"], log_to_driver=False)
    yield said["session"]
    sheaf.shutdown()
    command("stop", "--address", said["session"])


@sheaf.remote
class Speaker:
    def say(self, words):
        print(words, flush=True)
        return os.getpid()


def test_a_dump_has_what_a_report_wants_and_no_secrets(session, tmp_path):
    speaker = Speaker.remote()
    pid = sheaf.get(speaker.say.remote(f"hello, {SECRET}"))
    file = tmp_path / "dump.tar.gz"
    said = command("dump", "--address", session, file)
    assert str(file) in said
    assert (os.stat(file).st_mode & 0o777) == 0o600
    with tarfile.open(file) as archive:
        texts = {
            member.name.removeprefix("sheaf-dump/"): archive.extractfile(member).read().decode()
            for member in archive.getmembers()
        }
    assert "node process " in texts["about.txt"]
    assert "--num-cpus=2" in texts["config/command.txt"]
    assert "MY_NAME=<redacted>\n" in texts["config/environment.txt"]
    assert json.loads(texts["state/status.json"])["nodes"]
    assert "Speaker" in texts["state/actors.json"]
    for kind in ("nodes", "tasks", "objects", "jobs", "groups", "workers", "functions"):
        assert isinstance(json.loads(texts[f"state/{kind}.json"])[kind], list)
    assert f"pid {pid}, worker" in texts["stacks.txt"]
    assert "profile.folded" in texts
    assert "sheaf_tasks" in texts["metrics.txt"]
    assert any("hello, <redacted>" in text for name, text in texts.items() if "logs/" in name)
    token = pathlib.Path(session, "token").read_text().strip()
    assert len(token) == 64
    whole = "\n".join(texts.values())
    for secret in (SECRET, token, "nothing of yours"):
        assert secret not in whole


def test_what_cannot_be_dumped_is_said(session, tmp_path):
    (tmp_path / "there").touch()
    assert "is there already" in command("dump", "--address", session, tmp_path / "there", code=2)
    command("dump", "--address", session, tmp_path / "no" / "folder", code=2)
    command("dump", "--address", tmp_path, tmp_path / "new", code=3)
    assert not (tmp_path / "new").exists()
    assert "required" in command("dump", code=2)
