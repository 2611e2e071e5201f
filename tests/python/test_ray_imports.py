# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The ways in which libraries import `ray`, and in which programs that use it are started."""

import os
import pathlib
import subprocess
import sys
import zipapp

import pytest

WAIT_S = 60

IMPORTS = {
    "lazily": (
        """
import importlib.util, sys
spec = importlib.util.find_spec("ray")
spec.loader = importlib.util.LazyLoader(spec.loader)
lazy = sys.modules["ray"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lazy)
print(lazy.is_initialized())
import ray, sheaf
print(ray is lazy, ray.get is sheaf.get)
ray.mark = 1
print(sheaf.mark)
""",
        ["False", "True True", "1"],
    ),
    "a submodule lazily": (
        """
import importlib.util, sys
spec = importlib.util.find_spec("ray.util.queue")
spec.loader = importlib.util.LazyLoader(spec.loader)
lazy = sys.modules["ray.util.queue"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lazy)
print(lazy.Queue.__name__)
""",
        ["Queue"],
    ),
    "by looking whether it is there": (
        """
import importlib.util
print(bool(importlib.util.find_spec("ray").submodule_search_locations))
print(importlib.util.find_spec("ray.util").name, importlib.util.find_spec("ray.nowhere"))
try:
    import ray.nowhere
except ModuleNotFoundError as error:
    print(error.name)
""",
        ["True", "ray.util None", "ray.nowhere"],
    ),
    "by its distribution": (
        """
import importlib.metadata
print(importlib.metadata.version("ray"), importlib.metadata.distribution("ray").metadata["Name"])
""",
        ["2.60.0 ray"],
    ),
    "in threads at once": (
        """
import threading
names = []
def look():
    from ray import remote
    import ray.util.state
    names.append((remote.__name__, ray.util.state.list_actors.__name__))
threads = [threading.Thread(target=look) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(names), set(names))
""",
        ["8 {('remote', 'list_actors')}"],
    ),
    "after sheaf, and before it": (
        "import sheaf, ray; import sheaf.util.queue; import ray.util.queue as q;"
        "print(ray.get is sheaf.get, q is sheaf.util.queue)",
        ["True True"],
    ),
    "submodules as attributes": (
        "import ray; print(ray.util.placement_group.__name__, ray.util.queue.Queue.__name__,"
        "ray.util.ActorPool.__name__, ray.exceptions.RayError.__name__)",
        ["sheaf.util.placement_group Queue ActorPool RayError"],
    ),
    "names of data sets": (
        """
import ray, ray.data, sheaf.data
print(ray.data is sheaf.data, ray.data.Dataset is sheaf.data.Dataset)
try:
    ray.data.read_bigquery("project")
except NotImplementedError as error:
    print(error)
""",
        [
            "True True",
            "data.read_bigquery is not in Sheaf: write a Datasource and use read_datasource, or "
            "read_sql where there is a connection",
        ],
    ),
}


def expect(command, lines, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, **kwargs)
    assert done.stdout.splitlines() == lines, done.stdout + done.stderr


@pytest.mark.parametrize("way", IMPORTS)
def test_ray_can_be_imported(way):
    if "data" in way:
        pytest.importorskip("pyarrow", reason="pip install 'sheaf[data]'")
    program, lines = IMPORTS[way]
    expect([sys.executable, "-c", "import sheaf.as_ray\n" + program], lines)


def test_its_version_may_be_another():
    program = "import sheaf.as_ray, ray; print([int(part) for part in ray.__version__.split('.')])"
    expect([sys.executable, "-c", program], ["[2, 60, 0]"])
    environment = {**os.environ, "SHEAF_RAY_VERSION": "2.9.3"}
    expect([sys.executable, "-c", program], ["[2, 9, 3]"], env=environment)


PROGRAM = """
import sheaf.as_ray
import ray

@ray.remote
def double(x):
    return helper(x)

def helper(x):
    return 2 * x

@ray.remote
class Count:
    def __init__(self): self.sum = 0
    def add(self, x):
        self.sum += helper(x)
        return self.sum

if __name__ == "__main__":
    ray.init(num_cpus=1, log_to_driver=False)
    print(ray.get(double.remote(21)), ray.get(Count.remote().add.remote(4)))
"""


@pytest.mark.parametrize("way", ["-c", "-m", "stdin", "zipapp", "folder"])
def test_programs_may_be_started(way, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text(PROGRAM)
    (tmp_path / "program.py").write_text(PROGRAM)
    if way == "zipapp":
        zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    arguments = {
        "-c": ["-c", PROGRAM],
        "-m": ["-m", "program"],
        "stdin": ["-"],
        "zipapp": ["app.pyz"],
        "folder": ["app"],
    }[way]
    text = PROGRAM if way == "stdin" else None
    expect([sys.executable, *arguments], ["42 8"], cwd=tmp_path, input=text)


CHILDREN = """
import multiprocessing, sys
import sheaf.as_ray
import ray

@ray.remote
def double(x):
    return 2 * x

def child(queue):
    ray.init(num_cpus=1, log_to_driver=False)
    queue.put(ray.get(double.remote(4)))
    ray.shutdown()

if __name__ == "__main__":
    ray.init(num_cpus=1, log_to_driver=False)
    print(ray.get(double.remote(2)))
    if sys.argv[1] == "fork": ray.shutdown()
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    children = [context.Process(target=child, args=(queue,)) for _ in range(2)]
    for process in children: process.start()
    print(sorted(queue.get(timeout=30) for _ in children))
    for process in children: process.join()
    print([process.exitcode for process in children])
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_have_sessions_of_their_own(method, tmp_path):
    program = pathlib.Path(tmp_path / "program.py")
    program.write_text(CHILDREN)
    expect([sys.executable, program, method], ["4", "[8, 8]", "[0, 0]"])


SPAWNED = """
import multiprocessing
import ray

def name():
    print(ray.__name__, ray.__version__)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=name)
    process.start()
    process.join()
    print(process.exitcode)
"""


def test_spawned_processes_of_a_program_written_for_ray_find_ray(tmp_path):
    (tmp_path / "program.py").write_text(SPAWNED)
    command = [sys.executable, "-m", "sheaf.as_ray", tmp_path / "program.py"]
    expect(command, ["sheaf 2.60.0", "0"])
