# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""./do peer hosts: the tests of programs that are frozen by PyInstaller, served by gunicorn, or run
in notebooks; these tools are installed into build/peers/hosts (200 MB) when they are not there."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PACKAGES = ["pyinstaller", "gunicorn", "ipykernel", "jupyter-client"]
NEEDED = ["nanobind-backend", "cloudpickle", "numpy"]  # What Sheaf itself needs.
TESTS = ["test_frozen.py", "test_gunicorn.py", "test_notebooks.py"]


def interpreter():
    peers = os.environ.get("SHEAF_PEERS") or HERE.parents[1] / "build" / "peers"
    root = pathlib.Path(peers) / "hosts"
    python = root / "bin" / "python"
    has = "import PyInstaller, gunicorn, ipykernel, jupyter_client, nanobind_backend"
    if not python.exists() or subprocess.run([python, "-c", has]).returncode:
        print(f"installing {', '.join(PACKAGES)} into {root}: 200 MB", flush=True)
        subprocess.run([sys.executable, "-m", "venv", root], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, *PACKAGES, *NEEDED]).returncode:
            raise SystemExit(f"pip could not install these into {root}")
    return python


def main(arguments):
    if arguments:
        raise SystemExit(__doc__)
    python = interpreter()
    subprocess.run([python, "-m", "pip", "list", "--disable-pip-version-check"], check=True)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"),
            *(HERE.parents[0] / "python" / test for test in TESTS),
        ],
        env={**os.environ, "SHEAF_HOSTS_PYTHON": str(python)},
    ).returncode
