# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Makes the runtime environment of a submitted command and becomes the command.

As `python3 -m sheaf._worker.runtime_env_exec MARK COMMAND`, a child of the command's guard
(raylet/entrypoints/entrypoint_guard.h). The file MARK says that the environment is there and the
command
begins. This process is no member of the cluster: it asks its node with the program `sheaf`, which
its parent runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from sheaf import runtime_env
from sheaf._worker import environment

_TIMEOUT_S = 60.0


def _key_get(name_space: str, key: str) -> bytes | None:
    """The value of a key of the cluster; None: it is not there, or the node does not answer."""
    done = subprocess.run(
        [
            f"/proc/{os.getppid()}/exe",
            *("kv", "get", "--address", os.environ["SHEAF_ADDRESS"]),
            *("--timeout", str(_TIMEOUT_S), "--namespace", name_space, key),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    return done.stdout if done.returncode == 0 else None


def main(arguments: list[str]) -> None:
    """Runs the command, and does not return.

    Args:
        arguments: the file that says that it begins, and the command.

    Raises:
        SystemExit: the environment cannot be made.
    """
    mark, command = arguments
    wanted = json.loads(os.environ["RAY_JOB_CONFIG_JSON_ENV_VAR"])["runtime_env"]
    environment.key_get = _key_get
    try:
        # Variables are set already, and are in the way of nobody's own.
        fields = {name: value for name, value in wanted.items() if name != "env_vars"}
        environment.make(runtime_env.plan(fields).entries)
    except Exception as error:
        sys.exit(f"sheaf: the runtime environment could not be made: {error}")
    environment.keep_in_use()
    with open(mark, "w", encoding="ascii"):
        pass
    os.execv("/bin/sh", ["sh", "-c", command])


if __name__ == "__main__":
    main(sys.argv[1:])
