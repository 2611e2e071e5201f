# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What goes on while the disk of the session directory is full."""

import os
import subprocess
import sys

import pytest
from conftest import WAIT_S

# A mount namespace of its own, and root in it.
APART = ["unshare", "--mount", "--map-root-user"]

PROGRAM = """
import os, sys
import sheaf

sheaf.init(num_cpus=2, object_store_memory=80 << 20, log_to_driver=False)

@sheaf.remote
class Counter:
    def __init__(self): self.value = 0
    def add(self): self.value += 1; return self.value

@sheaf.remote
def double(n): return 2 * n

old = Counter.remote()
assert sheaf.get(old.add.remote()) == 1
with open(os.path.join(os.environ["SHEAF_DIR"], "fill"), "wb", 0) as file:
    try:
        while True: file.write(bytes(4096))
    except OSError as error:
        print(error.strerror)
assert sheaf.get([old.add.remote() for _ in range(6000)])[-1] == 6001  # More than a worker's timeline has records.
assert sheaf.get([double.remote(n) for n in range(500)]) == [2 * n for n in range(500)]
new = [Counter.options(num_cpus=0).remote() for _ in range(3)]
assert sheaf.get([actor.add.remote() for actor in new]) == [1, 1, 1]
print("all right")
"""


def test_calls_go_on_while_the_disk_is_full(tmp_path):
    allowed = subprocess.run(
        [*APART, "mount", "-t", "tmpfs", "none", tmp_path], capture_output=True, text=True
    )
    if allowed.returncode != 0:
        pytest.skip(f"a mount namespace is not allowed here: {allowed.stderr.strip()}")
    script = (
        f"mount -t tmpfs -o size=48m,mode=700 none '{tmp_path}' && exec "
        f"'{sys.executable}' -c \"$0\""
    )
    done = subprocess.run(
        [*APART, "sh", "-c", script, PROGRAM],
        env=os.environ | {"SHEAF_DIR": str(tmp_path), "SHEAF_STATE_IN_MEMORY": "1"},
        capture_output=True, text=True, timeout=2 * WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "No space left on device\nall right\n"
