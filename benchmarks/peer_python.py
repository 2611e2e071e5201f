# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Other Pythons on this machine, which have what a benchmark needs: virtual environments below
$SHEAF_PEERS."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile


def pythons(*names):
    """The interpreters of the environments of these names that are there."""
    root = os.environ.get("SHEAF_PEERS")
    folders = [pathlib.Path(root) / name for name in names] if root else []
    return [str(one / "bin" / "python") for one in folders if (one / "bin" / "python").exists()]


def has(python, module):
    """Whether it imports the module."""
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def go_on_where(module, *names):
    """Runs this program in one of these environments and exits, where this Python lacks a module
    and one of them has it; else it does nothing."""
    if importlib.util.find_spec(module) is not None or "SHEAF_BENCH_AGAIN" in os.environ:
        return
    python = next((one for one in pythons(*names) if has(one, f"{module}, cloudpickle")), None)
    backend = importlib.util.find_spec("nanobind_backend")
    if python is None or backend is None or not backend.origin:
        return
    with tempfile.TemporaryDirectory() as folder:  # Of what this Python has, only that.
        package = pathlib.Path(backend.origin).parent
        (pathlib.Path(folder) / package.name).symlink_to(package)
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), folder])
        environment = {**os.environ, "PYTHONPATH": path, "SHEAF_BENCH_AGAIN": "1"}
        sys.exit(subprocess.run([python, *sys.argv], env=environment).returncode)
