# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Programs frozen by PyInstaller, whose workers are the program itself with another argument."""

import os
import pathlib
import subprocess
import sys

import pytest
import sheaf
from conftest import WAIT_S, python_with

FREEZING_S = 600  # It looks into each library that it finds.

PROGRAM = """
import os
import sys

with open(os.environ["STARTS"], "a") as starts:  # A worker does not come here.
    starts.write("started\\n")

import sheaf.as_ray
import ray


class Point:
    def __init__(self, x):
        self.x = x


@ray.remote
def double(point):
    import sheaf

    return Point(2 * point.x), os.getpid()


@ray.remote(max_concurrency=2)
class Counter:
    def __init__(self):
        self.value = 0

    def add(self, n):
        import ray.util.queue  # On another thread than the main one.

        self.value += n
        return self.value


if __name__ == "__main__":
    ray.init(num_cpus=2)
    values = ray.get([double.remote(Point(n)) for n in range(4)])
    print([point.x for point, _ in values], os.getpid() in {pid for _, pid in values})
    counter = Counter.remote()
    print(sum(ray.get([counter.add.remote(2) for _ in range(2)])) in (6, 8))
    from ray.util.queue import Queue

    queue = Queue()
    queue.put(3)
    print(queue.get())
    try:
        ray.get(double.options(runtime_env={"pip": ["six"]}).remote(Point(1)))
    except ray.exceptions.RuntimeEnvSetupError as error:
        print("has no interpreter to install for" in str(error))
    ray.shutdown()
    print(sys.argv[1:])
"""


def freeze(folder, *options):
    """Of PROGRAM: the path of the program."""
    python = python_with("PyInstaller", "nanobind_backend", "cloudpickle", "numpy")
    (folder / "program.py").write_text(PROGRAM)
    hooks = pathlib.Path(sheaf.__file__).parent / "_pyinstaller"
    done = subprocess.run(
        [python, "-m", "PyInstaller", "--log-level=WARN", *options, "program.py"]
        + [f"--additional-hooks-dir={hooks}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=FREEZING_S,
    )
    assert done.returncode == 0, done.stderr
    return folder / "dist" / "program"


@pytest.mark.parametrize("kind", ["onedir", "onefile"])
def test_a_frozen_program_has_workers(tmp_path, kind):
    program = freeze(tmp_path, f"--{kind}")
    if kind == "onedir":
        program /= "program"
    # Nothing of what is installed here helps it.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    starts = tmp_path / "starts"
    done = subprocess.run(
        [program, "a", "b"],
        cwd="/",
        env={**environment, "STARTS": str(starts)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    said = "[0, 2, 4, 6] False\nTrue\n3\nTrue\n['a', 'b']\n"
    assert done.stdout == said, done.stdout + done.stderr
    assert starts.read_text() == "started\n"


def test_a_program_that_was_frozen_without_the_hook_is_refused_before_it_starts_itself():
    program = "import sys; sys.frozen = True; import sheaf; sheaf.init(num_cpus=1)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 1
    assert "was frozen without Sheaf's hook" in done.stderr, done.stderr
    assert "--additional-hooks-dir=" in done.stderr
