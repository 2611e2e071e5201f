# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Programs that import ray."""

import subprocess
import sys

from conftest import WAIT_S

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
    assert done.stdout.splitlines() == ["('sheaf', 1, True) plain 3", "True", "ray.nowhere"], done.stdout + done.stderr


def test_the_alias_serves_ray_in_driver_and_workers(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import sheaf.as_ray\n" + SCRIPT)
    expect([sys.executable, script])


def test_a_script_runs_unchanged(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    expect([sys.executable, "-m", "sheaf.as_ray", script])
