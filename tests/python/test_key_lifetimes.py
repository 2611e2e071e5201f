# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What lies in the cluster's key-value store, for how long, and how people look at it: `sheaf
kv`."""

import json
import subprocess
import sys
import time

import pytest
import sheaf
from conftest import WAIT_S, wait_until
from sheaf.cluster_utils import Cluster
from sheaf.lifecycle import executable


@pytest.fixture
def cluster_session():
    """A node that outlives its drivers, and what `sheaf kv list` says of it."""
    sheaf.shutdown()
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 4, "object_store_memory": 64 << 20}
    )

    def kv(*words):
        command = [
            executable(),
            "kv",
            *(words or ("list", "--json")),
            f"--address={cluster.address}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
        if words:
            return done
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["keys"]

    yield cluster.address, kv
    cluster.shutdown()


def test_packages_and_functions_go_with_their_job_and_users_keys_stay(cluster_session, tmp_path):
    """Two programs with one package, one after the other and both at once; a detached actor of the
    first keeps what it needs."""
    session, kv = cluster_session
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "big_module.py").write_text("VALUE = 7\n")
    program = """
import sys, sheaf
from sheaf import _core
project, how = sys.argv[2:]
sheaf.init(address=sys.argv[1], namespace="kv", runtime_env={"working_dir": project}, log_to_driver=False)
_core.key_put("users", how, b"mine", True)
filler = bytes(range(256)) * 200

@sheaf.remote(num_cpus=0)
class Keeper:
    def value(self):
        import big_module
        return big_module.VALUE + len(filler)

keeper = Keeper.options(name=how, lifetime="detached" if how == "detached" else None, max_restarts=-1).remote()
print(sheaf.get(keeper.value.remote(), timeout=60), flush=True)
sys.stdin.read()
"""

    def run(how):
        job = subprocess.Popen(
            [sys.executable, "-c", program, session, str(tmp_path / "project"), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert job.stdout.readline().strip() == str(7 + 51200)
        return job

    def spaces():
        return {
            space: sum(1 for key in kv() if key["name_space"] == space)
            for space in ("sheaf-packages", "sheaf-functions", "users")
        }

    first, second = run("detached"), run("plain")
    assert (
        spaces()["sheaf-packages"] == 2
        and spaces()["sheaf-functions"] > 0
        and spaces()["users"] == 2
    )
    assert {len(key["jobs"]) for key in kv() if key["name_space"] == "sheaf-packages"} == {2}
    first.communicate()
    wait_until(
        lambda: all(len(key["jobs"]) == 2 for key in kv() if key["name_space"] == "sheaf-packages")
    )  # The detached actor's job stays an owner.
    second.communicate()
    wait_until(
        lambda: all(len(key["jobs"]) == 1 for key in kv() if key["name_space"] == "sheaf-packages")
    )
    third = run("third")
    third.kill()  # A driver that dies.
    third.communicate()
    sheaf.init(address=session, namespace="kv")
    try:
        keeper = sheaf.get_actor("detached")
        sheaf.kill(keeper, no_restart=False)  # It starts again, with what its job has left.
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                assert sheaf.get(keeper.value.remote(), timeout=WAIT_S) == 7 + 51200
                break
            except sheaf.exceptions.RayActorError:
                assert time.monotonic() < deadline
        sheaf.kill(keeper)
    finally:
        sheaf.shutdown()
    wait_until(lambda: spaces() == {"sheaf-packages": 0, "sheaf-functions": 0, "users": 3})


def test_keys_are_listed_read_and_deleted_from_the_command_line(cluster_session):
    session, kv = cluster_session
    sheaf.init(address=session)
    for key in ("a/1", "a/2", "b"):
        sheaf._core.key_put("mine", key, key.encode() * 1000, True)
    sheaf.shutdown()
    assert [(row["name_space"], row["key"], row["bytes"], row["jobs"]) for row in kv()] == [
        ("mine", "a/1", 3000, []),
        ("mine", "a/2", 3000, []),
        ("mine", "b", 1000, []),
    ]
    assert (
        "2 keys with 5.9 KiB" in kv("list", "a/").stdout
        and "b" not in kv("list", "a/").stdout.split()
    )
    assert "0 keys" in kv("list", "--namespace", "other").stdout
    assert kv("get", "b", "--namespace", "mine").stdout == "b" * 1000
    missing = kv("get", "b")
    assert missing.returncode == 4 and "there is no key 'b' in the name space ''" in missing.stderr
    assert "Deleted 2 keys" in kv("delete", "a/", "--prefix", "--namespace", "mine").stdout
    assert kv("delete", "a/1", "--namespace", "mine").returncode == 4
    assert [row["key"] for row in kv()] == ["b"]
    help_text = kv("list", "--help").stdout
    assert "PREFIX" in help_text and "--namespace" in help_text and "detached actor" in help_text


def test_code_whose_key_was_deleted_is_a_typed_error_at_its_caller(cluster_session):
    session, kv = cluster_session
    filler = bytes(range(256)) * 200
    sheaf.init(address=session)
    try:

        @sheaf.remote
        def size():
            return len(filler)

        @sheaf.remote(num_cpus=0)
        class Sizer:
            def size(self):
                return len(filler)

        sizer = Sizer.remote()
        assert sheaf.get([size.remote(), sizer.size.remote()], timeout=WAIT_S) == [51200, 51200]
        assert (
            "Deleted 2 keys"
            in kv("delete", "", "--prefix", "--namespace", "sheaf-functions").stdout
        )
        other = {"env_vars": {"ANOTHER": "worker"}}  # The first may have the code.
        with pytest.raises(
            sheaf.exceptions.RaySystemError, match="the code of .*size.* was deleted"
        ):
            sheaf.get(size.options(runtime_env=other).remote(), timeout=WAIT_S)
        with pytest.raises(
            sheaf.exceptions.ActorDiedError, match="the code of .*Sizer.* was deleted"
        ):
            sheaf.get(Sizer.remote().size.remote(), timeout=WAIT_S)
        assert sheaf.get(sizer.size.remote(), timeout=WAIT_S) == 51200  # Who has the code goes on.
    finally:
        sheaf.shutdown()
