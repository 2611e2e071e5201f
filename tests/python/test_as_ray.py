# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Programs that import ray."""

import os
import subprocess
import sys

import sheaf
from conftest import WAIT_S
from sheaf import _core

SCRIPT = """
import ray
import ray.util
from ray.exceptions import RayTaskError
from ray.util.placement_group import placement_group
import ray.cloudpickle as pickle

ray.init(num_cpus=2)


@ray.remote
def inside():
    import ray.util.queue

    return ray.__name__, ray.get(ray.put(1)), ray.is_initialized()


def plain():
    import ray

    return ray.get_runtime_context().get_task_name()


@ray.remote
class Actor:
    def fail(self):
        raise KeyError(1)


print(ray.get(inside.remote()), ray.get(ray.remote(plain).remote()), pickle.loads(pickle.dumps(3)))
try:
    ray.get(Actor.remote().fail.remote())
except RayTaskError as error:
    print(isinstance(error, KeyError))
try:
    import ray.nowhere
except ModuleNotFoundError as error:
    print(error.name)
"""


def expect(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.stdout.splitlines() == ["('sheaf', 1, True) plain 3", "True", "ray.nowhere"], (
        done.stdout + done.stderr
    )


def test_the_alias_serves_ray_in_driver_and_workers(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import sheaf.as_ray\n" + SCRIPT)
    expect([sys.executable, script])


def test_a_script_runs_unchanged(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    expect([sys.executable, "-m", "sheaf.as_ray", script])


def run_as_ray(tmp_path, program, *arguments):
    (tmp_path / "program.py").write_text(program)
    sheaf_program = os.path.join(os.path.dirname(_core.__file__), "bin", "sheaf")
    done = subprocess.run(
        [
            sheaf_program,
            "run",
            "--as-ray",
            "--python",
            sys.executable,
            tmp_path / "program.py",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_command_runs_a_script_unchanged(tmp_path):
    assert run_as_ray(tmp_path, SCRIPT) == ["('sheaf', 1, True) plain 3", "True", "ray.nowhere"]


CHILDREN = """
import multiprocessing
import os
import subprocess
import sys

import ray

ASK = [sys.executable, "-c", "import ray.util.queue; from ray.exceptions import RayError; print(ray.__name__, RayError.__module__)"]


def ask():
    return subprocess.run(ASK, capture_output=True, text=True).stdout.strip()


def name(_):
    import ray

    return ray.__name__


if __name__ == "__main__":
    ray.init(num_cpus=1)
    print(sys.argv[1:])
    print("driver's child:", ask())
    print("worker's child:", ray.get(ray.remote(ask).remote()))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("spawned:", pool.map(name, [0]))
"""


def test_children_of_the_driver_and_of_workers_have_the_alias_too(tmp_path):
    answer = "sheaf sheaf.exceptions"
    expected = [
        "['--flag']",
        f"driver's child: {answer}",
        f"worker's child: {answer}",
        "spawned: ['sheaf']",
    ]
    assert run_as_ray(tmp_path, CHILDREN, "--flag") == expected
    (tmp_path / "other.py").write_text("import sheaf.as_ray\n" + CHILDREN)
    done = subprocess.run(
        [sys.executable, tmp_path / "other.py", "--flag"],
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    assert done.stdout.splitlines() == expected, done.stderr


def test_the_alias_names_the_version_of_ray_and_the_package_its_own(tmp_path):
    program = (
        "import ray, sheaf; print(ray.__version__ == sheaf.__ray_version__, "
        "sheaf.__version__, ray.init(num_cpus=1).ray_version)"
    )
    assert run_as_ray(tmp_path, program) == [f"True {_core.__version__} {sheaf.__ray_version__}"]


def test_what_is_set_in_the_alias_is_set_in_the_package(tmp_path):
    program = """
from unittest import mock
import ray, sheaf
ray.mark = 1
print(sheaf.mark, "get" in dir(ray))
with mock.patch("ray.get", lambda ref: "patched"):
    print(sheaf.get(0))
print(ray.get is sheaf.get)
del ray.mark
print(hasattr(sheaf, "mark"))
"""
    assert run_as_ray(tmp_path, program) == ["1 True", "patched", "True", "False"]


def test_functions_find_the_alias_among_their_globals(tmp_path):
    program = """
import ray

ray.init(num_cpus=2)


@ray.remote
def inside(x):
    return ray.get(ray.put(x)), ray.__version__ == driver_version


@ray.remote
class Actor:
    def call(self):
        return ray.get(inside.remote(2))


driver_version = ray.__version__
print(ray.get(inside.remote(1)), ray.get(Actor.remote().call.remote()))
"""
    assert run_as_ray(tmp_path, program) == ["(1, True) (2, True)"]


def test_what_holds_the_alias_is_read_where_it_is_not(tmp_path):
    program = """
import subprocess, sys
import ray, ray.cloudpickle

pickled = ray.cloudpickle.dumps(lambda: ray.is_initialized())
read = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1]))())"
print(subprocess.check_output([sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path}; " + read, pickled.hex()], text=True))
"""
    assert run_as_ray(tmp_path, program)[0] == "False"
