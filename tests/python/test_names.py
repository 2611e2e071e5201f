# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names by which programs know Ray, beside those that test_surface.py compares."""

import functools
import importlib
import importlib.util
import inspect
import json
import pathlib
import re
import subprocess
import sys

import pytest
import ray_names
import sheaf
from conftest import WAIT_S
from sheaf import exceptions, lifecycle, options

SURFACE = json.loads(
    (pathlib.Path(__file__).resolve().parents[1] / "peer" / "answers" / "surface.json").read_text()
)


def found(name):
    parts = name.split(".")
    for split in range(len(parts), -1, -1):
        try:
            module = importlib.import_module(".".join(["sheaf", *parts[:split]]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[split:], module)
    raise AssertionError(name)


@pytest.mark.parametrize("name", ray_names.TRAIN.split())
def test_the_name_is_there(name):
    found(f"train.{name}")


@pytest.mark.parametrize("name", ray_names.TRAIN_KEYWORDS)
def test_the_keywords_are_taken(name):
    parameters = inspect.signature(found(f"train.{name}")).parameters
    assert not set(ray_names.TRAIN_KEYWORDS[name].split()) - set(parameters)


def test_init_takes_the_keywords_of_ray():
    text = SURFACE["ray"]["init"]
    wanted = set(re.findall(r"(\w+)=", text)) - {"_kwargs"}
    there = set(inspect.signature(sheaf.init).parameters) | lifecycle._IGNORED
    assert len(wanted) > 20 and not wanted - there


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("task", name)
        for name in [*SURFACE["options of a remote function"], *ray_names.PLACING.split()]
    ]
    + [
        ("actor", name)
        for name in [*SURFACE["options of a remote class"], *ray_names.PLACING.split()]
    ]
    + [("method", name) for name in ray_names.METHOD_OPTIONS.split()],
)
def test_the_option_is_known(kind, name):
    not_none = {
        "enable_task_events": True,
        "get_if_exists": False,
        "placement_group_bundle_index": -1,
        "retry_exceptions": False,
    }
    options.check(kind, {name: not_none.get(name)})


def test_exceptions_are_of_pythons_own_kinds_too():
    assert issubclass(exceptions.GetTimeoutError, TimeoutError)
    assert issubclass(exceptions.ActorAlreadyExistsError, ValueError) and issubclass(
        exceptions.ActorHandleNotFoundError, ValueError
    )


def test_the_alias_has_all_of_them():
    """Both as attributes and, of modules, as `import ray.x.y`."""
    modules = [name for name in SURFACE if name.startswith("ray") and " " not in name]
    there = [
        name[4:] for name in modules if importlib.util.find_spec(name.replace("ray", "sheaf", 1))
    ]
    there.remove("")
    assert len(there) > 40
    program = """if True:
        import sheaf.as_ray, functools, importlib, sys
        import ray
        for name in sys.argv[1:]:
            parts = name.split(".")
            for split in range(len(parts), -1, -1):
                try:
                    module = importlib.import_module(".".join(["ray", *parts[:split]]))
                except ModuleNotFoundError:
                    continue
                break
            functools.reduce(getattr, parts[split:], module)
            if split:
                functools.reduce(getattr, parts, ray)
    """
    done = subprocess.run(
        [sys.executable, "-c", program, *there], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr


def test_names_that_are_imported_late_are_listed_by_dir():
    assert {"client", "LoggingConfig", "logger", "util"} <= set(dir(sheaf)) and {
        "iter",
        "log_once",
        "connect",
    } <= set(dir(sheaf.util))


def test_what_is_absent_says_so():
    with pytest.raises(NotImplementedError, match="util.iter.from_items is not in Sheaf"):
        sheaf.util.iter.from_items([1])
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        sheaf.nothing_of_the_kind


@pytest.mark.usefixtures("node")
def test_actors_and_nodes_are_listed():
    from sheaf.util import state

    @sheaf.remote(num_cpus=0)
    class Listed:
        def ready(self):
            return True

    actor = Listed.options(name="listed").remote()
    sheaf.get(actor.ready.remote())
    (row,) = state.list_actors(filters=[("name", "=", "listed")])
    assert row.actor_id == actor._actor_id.hex() and row["class_name"].endswith("Listed")
    assert state.list_nodes()[0].node_id == sheaf.nodes()[0]["NodeID"]
