# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of one's own, in a temporary folder, for a row of bench_tune.py."""

import contextlib
import os
import shutil
import subprocess
import tempfile

PROGRAMS = ("initdb", "pg_ctl")
_ROOTS = "postgres"  # Whose server it is where this process is root's, which the server refuses.


def found(program):
    """Its path, or None: it is not installed. Debian does not put it into PATH."""
    root = "/usr/lib/postgresql"
    folders = [f"{root}/{name}/bin" for name in os.listdir(root)] if os.path.isdir(root) else []
    return shutil.which(program, path=os.pathsep.join([os.environ["PATH"], *folders]))


@contextlib.contextmanager
def running():
    """The URL of its database, as SQLAlchemy takes it. The server listens on a socket alone."""
    user = {"user": _ROOTS} if os.geteuid() == 0 else {}

    def call(program, *words):
        command = [found(program), "-D", f"{folder}/data", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, **user)

    with tempfile.TemporaryDirectory() as folder:
        if user:
            shutil.chown(folder, _ROOTS)
        call("initdb", "-U", "bench", "--auth=trust", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder}"
        call("pg_ctl", "start", "-w", "-l", f"{folder}/log", "-o", options)
        try:
            yield f"postgresql+psycopg2://bench@/postgres?host={folder}"
        finally:
            call("pg_ctl", "stop", "-w", "-m", "immediate")
