# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""./do peer torch [VERSION]: the tests of the backend "sheaf" and of sheaf.train with torch of PyPI,
the newest or VERSION, which is installed into build/peers (5 GB) when it is not there."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def interpreter(version):
    peers = os.environ.get("SHEAF_PEERS") or HERE.parents[1] / "build" / "peers"
    root = pathlib.Path(peers) / ("torch" + (f"-{version}" if version else ""))
    python = root / "bin" / "python"
    if subprocess.run([python, "-c", "import torch"]).returncode if python.exists() else True:
        wanted = f"torch=={version}" if version else "torch"
        print(f"installing {wanted} into {root}: 5 GB", flush=True)
        subprocess.run(["/usr/bin/python3", "-m", "venv", root], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted]
        if subprocess.run([*pip, "numpy", "nanobind-backend", "cloudpickle"]).returncode:
            raise SystemExit(f"pip could not install {wanted} into {root}")
    return python


def main(arguments):
    if len(arguments) > 1 or arguments[:1] == ["--help"]:
        raise SystemExit(__doc__)
    python = interpreter(arguments[0] if arguments else None)
    said = subprocess.run(
        [
            python,
            "-c",
            "import torch, platform; print(torch.__version__, platform.python_version())",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    print("torch {}, Python {}".format(*said.stdout.split()), flush=True)
    tests = HERE.parents[0] / "python" / "test_train_torch.py"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", tests],
        env={**os.environ, "SHEAF_TORCH_PYTHON": str(python)},
    ).returncode
