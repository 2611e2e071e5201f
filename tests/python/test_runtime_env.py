# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runtime environments: what workers find of working_dir, py_modules, pip and uv. Packages come
from a folder of wheels that the tests make; no index is asked."""

import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import zipfile

import pytest
import sheaf
from conftest import WAIT_S
from sheaf import runtime_env
from sheaf._internal import ignore_rules, runtime_env_package
from sheaf.exceptions import RuntimeEnvSetupError

INSTALL_S = 4 * WAIT_S  # pip is slow on a busy machine.


def wheel(folder, name, version, content, requires=()):
    """A wheel with one module."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {r}\n" for r in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: "
        "py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = (
            base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        )
        record += f"{path},sha256={digest},{len(text)}\n"
    made = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": record + f"{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return made


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    wheel(folder, "sheaf_test_leaf", "1.0", "VALUE = 1\n")
    wheel(folder, "sheaf_test_leaf", "2.0", "VALUE = 2\n")
    wheel(
        folder,
        "sheaf_test_stem",
        "1.0",
        "import sheaf_test_leaf\nVALUE = 10 + sheaf_test_leaf.VALUE\n",
        ["sheaf_test_leaf"],
    )
    return folder


def offline(wheels, *packages, **more):
    return {
        "packages": list(packages),
        "pip_install_options": ["--no-index", "--find-links", str(wheels)],
        **more,
    }


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    (root / "inner").mkdir(parents=True)
    (root / "settings.py").write_text("ANSWER = 42\n")
    (root / "inner" / "data.txt").write_text("data")
    (root / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "run.sh").chmod(0o755)
    (root / "noise.log").write_text("noise")
    return root


def value_of(module):
    return __import__(module).VALUE


def import_and_look():
    import settings

    return (
        settings.ANSWER,
        sorted(str(p) for p in pathlib.Path().rglob("*") if p.is_file()),
        os.popen("./run.sh").read(),
    )


# --- of all calls of a program
# --------------------------------------------------------------------------------------


def test_a_program_s_working_dir_reaches_its_workers_even_when_it_is_gone(project):
    sheaf.init(
        num_cpus=2,
        log_to_driver=False,
        runtime_env={
            "working_dir": str(project),
            "excludes": ["*.log"],
            "env_vars": {"MODE": "test"},
        },
    )
    try:
        shutil.rmtree(project)  # The workers have it from the cluster, not from this path.
        answer, files, said = sheaf.get(sheaf.remote(import_and_look).remote(), timeout=WAIT_S)
        assert (answer, files, said) == (42, ["inner/data.txt", "run.sh", "settings.py"], "ran\n")

        @sheaf.remote
        class Reader:
            def read(self):
                return pathlib.Path("inner/data.txt").read_text(), os.environ["MODE"]

        assert sheaf.get(Reader.remote().read.remote(), timeout=WAIT_S) == ("data", "test")
        folders = sheaf.get([sheaf.remote(os.getcwd).remote() for _ in range(20)], timeout=WAIT_S)
        assert len(set(folders)) == 1  # One copy for all workers of a node.
    finally:
        sheaf.shutdown()


def test_a_wrong_environment_starts_nothing(tmp_path):
    with pytest.raises(ValueError, match="is no directory"):
        sheaf.init(num_cpus=1, runtime_env={"working_dir": str(tmp_path / "nowhere")})
    assert not sheaf.is_initialized()


# --- of single tasks and actors
# -------------------------------------------------------------------------------------


def test_a_task_has_its_own_environment_and_others_do_not(node, project, tmp_path):
    package = tmp_path / "tools"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 5\n")
    single = tmp_path / "single_file.py"
    single.write_text("VALUE = 6\n")
    of_wheel = wheel(tmp_path, "sheaf_test_direct", "1.0", "VALUE = 7\n")

    @node.remote(runtime_env={"py_modules": [str(package), single, of_wheel]})
    def inside():
        return [value_of(m) for m in ("tools", "single_file", "sheaf_test_direct")], node.get(
            nested.remote()
        )

    @node.remote
    def nested():  # Inherits the environment of its caller.
        return value_of("tools")

    @node.remote
    def outside():
        return value_of("tools")

    assert node.get(inside.remote(), timeout=WAIT_S) == ([5, 6, 7], 5)
    with pytest.raises(ModuleNotFoundError):
        node.get(outside.remote(), timeout=WAIT_S)


def test_a_module_object_is_a_py_module(node, tmp_path, monkeypatch):
    (tmp_path / "given_as_object").mkdir()
    (tmp_path / "given_as_object" / "__init__.py").write_text("VALUE = 8\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import given_as_object

    env = {"py_modules": [given_as_object]}
    read = node.remote(runtime_env=env)(
        lambda: (value_of("given_as_object"), __import__("given_as_object").__file__)
    )
    value, path = node.get(read.remote(), timeout=WAIT_S)
    assert value == 8 and "/environments/" in path


def test_env_vars_of_a_caller_reach_the_calls_that_it_makes(node):
    inner = node.remote(lambda: os.environ.get("OUTER"))
    outer = node.remote(runtime_env={"env_vars": {"OUTER": "yes"}})(
        lambda: node.get(inner.remote())
    )
    assert node.get(outer.remote(), timeout=WAIT_S) == "yes"
    assert node.get(inner.remote(), timeout=WAIT_S) is None


def test_modules_are_found_where_pythonpath_of_the_environment_says(node, tmp_path):
    (tmp_path / "found_by_variable.py").write_text("VALUE = 11\n")
    read = node.remote(lambda: value_of("found_by_variable"))
    env = {"env_vars": {"PYTHONPATH": str(tmp_path) + os.pathsep + "${PYTHONPATH}"}}
    assert node.get(read.options(runtime_env=env).remote(), timeout=WAIT_S) == 11
    with pytest.raises(ModuleNotFoundError):
        node.get(read.remote(), timeout=WAIT_S)


def test_the_context_tells_the_environment(node, project):
    def told():
        context = sheaf.get_runtime_context()
        return context.runtime_env, context.get_runtime_env_string()

    env = {
        "env_vars": {"NAME": "value"},
        "working_dir": str(project),
        "config": {"setup_timeout_seconds": 77},
    }
    found, text = node.get(node.remote(runtime_env=env)(told).remote(), timeout=WAIT_S)
    assert (
        isinstance(found, runtime_env.RuntimeEnv)
        and found.env_vars() == {"NAME": "value"}
        and found.has_working_dir()
    )
    assert (
        found["config"] == {"setup_timeout_seconds": 77}
        and runtime_env.RuntimeEnv.deserialize(text) == found
    )
    assert node.get(node.remote(told).remote(), timeout=WAIT_S) == ({}, "{}")
    assert node.get_runtime_context().runtime_env == {}


def test_a_hook_prepares_the_worker(node, tmp_path):
    def prepare():
        os.environ["PREPARED"] = "yes"

    def look():
        return os.environ.get("PREPARED")

    assert (
        node.get(
            node.remote(runtime_env={"worker_process_setup_hook": prepare})(look).remote(),
            timeout=WAIT_S,
        )
        == "yes"
    )
    (tmp_path / "hooks_of_a_test.py").write_text(
        "import os\n\ndef by_name():\n    os.environ['PREPARED'] = 'by name'\n"
    )
    env = {
        "worker_process_setup_hook": "hooks_of_a_test.by_name",
        "py_modules": [str(tmp_path / "hooks_of_a_test.py")],
    }
    assert node.get(node.remote(runtime_env=env)(look).remote(), timeout=WAIT_S) == "by name"

    def fails():
        raise KeyError("not prepared")

    with pytest.raises(
        RuntimeEnvSetupError,
        match="worker_process_setup_hook raised(.|\n)*KeyError: 'not prepared'",
    ):
        node.get(
            node.remote(runtime_env={"worker_process_setup_hook": fails})(look).remote(),
            timeout=WAIT_S,
        )


def test_subprocesses_find_the_modules_too(node, tmp_path):
    (tmp_path / "for_children.py").write_text("VALUE = 9\n")

    @node.remote(runtime_env={"py_modules": [str(tmp_path / "for_children.py")]})
    def spawn():
        import subprocess

        return subprocess.run(
            [sys.executable, "-c", "import for_children; print(for_children.VALUE)"],
            capture_output=True,
            text=True,
        ).stdout

    assert node.get(spawn.remote(), timeout=WAIT_S) == "9\n"


# --- packages
# -------------------------------------------------------------------------------------------------------


def test_pip_installs_what_is_asked_for_with_what_it_requires_once_per_node(node, wheels):
    # The same requirements in another order are the same environment.
    orders = [
        ["sheaf_test_stem", "sheaf_test_leaf==1.0"],
        ["sheaf_test_leaf==1.0", "sheaf_test_stem"],
    ]

    def look():
        import sheaf_test_stem

        return (
            sheaf_test_stem.VALUE,
            os.path.dirname(sheaf_test_stem.__file__),
            os.environ["VIRTUAL_ENV"],
        )

    refs = [
        node.remote(runtime_env={"pip": offline(wheels, *order)})(look).remote()
        for order in orders
        for _ in range(2)
    ]
    found = node.get(refs, timeout=INSTALL_S)  # Several workers at the same time: one installs.
    assert {value for value, _, _ in found} == {11}
    assert len({place for _, place, _ in found}) == 1
    place, folder = found[0][1:]
    assert place.startswith(folder + os.sep)


def test_other_requirements_are_another_environment(node, wheels):
    class Holder:
        def value(self):
            return value_of("sheaf_test_leaf")

    actor = node.remote(
        runtime_env={"pip": offline(wheels, "sheaf_test_leaf==2.0", pip_check=True)}
    )(Holder).remote()
    assert node.get(actor.value.remote(), timeout=INSTALL_S) == 2
    with pytest.raises(ModuleNotFoundError):
        node.get(node.remote(value_of).remote("sheaf_test_leaf"), timeout=WAIT_S)


def test_a_requirements_file_is_read(node, wheels, tmp_path):
    (tmp_path / "requirements.txt").write_text(
        f"# what we need\n--no-index\n--find-links {wheels}\nsheaf_test_leaf==1.0  # the old one\n"
    )
    read = node.remote(runtime_env={"pip": str(tmp_path / "requirements.txt")})(value_of)
    assert node.get(read.remote("sheaf_test_leaf"), timeout=INSTALL_S) == 1


def test_a_failed_installation_says_what_pip_said(node, wheels):
    env = {"pip": offline(wheels, "sheaf_test_no_such_package")}
    with pytest.raises(RuntimeEnvSetupError, match="sheaf_test_no_such_package") as failed:
        node.get(node.remote(runtime_env=env)(value_of).remote("x"), timeout=INSTALL_S)
    assert "No matching distribution" in str(failed.value)
    assert str(failed.value).count("Failed to set up runtime environment") == 1

    @node.remote(runtime_env=env)
    class Actor:
        def call(self):
            return 1

    with pytest.raises(RuntimeEnvSetupError, match="No matching distribution"):
        node.get(Actor.remote().call.remote(), timeout=INSTALL_S)
    assert (
        node.get(node.remote(lambda: 1).remote(), timeout=WAIT_S) == 1
    )  # Others are not concerned.


def test_an_installation_has_a_bound(node, tmp_path):
    slow = tmp_path / "uv"
    slow.write_text("#!/bin/sh\nsleep 100\n")
    slow.chmod(0o755)
    env = {
        "uv": ["anything"],
        "config": {"setup_timeout_seconds": 0.5},
        "env_vars": {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    }
    with pytest.raises(RuntimeEnvSetupError, match="setup_timeout_seconds"):
        node.get(node.remote(runtime_env=env)(value_of).remote("x"), timeout=WAIT_S)


def test_uv_is_called_for_the_environment_of_the_worker(node, wheels, tmp_path):
    tool = tmp_path / "uv"  # Takes uv's arguments and lets pip do it.
    tool.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import subprocess, sys
        assert sys.argv[1:4] == ["pip", "install", "--python"], sys.argv
        sys.exit(subprocess.call([{sys.executable!r}, "-m", "pip", "--python", sys.argv[4], "install", *sys.argv[5:]]))
        """)
    )
    tool.chmod(0o755)
    uv = {
        "packages": ["sheaf_test_leaf==2.0"],
        "uv_pip_install_options": ["--no-index", "--find-links", str(wheels)],
    }
    env = {"uv": uv, "env_vars": {"PATH": f"{tmp_path}:{os.environ['PATH']}"}}
    assert (
        node.get(
            node.remote(runtime_env=env)(value_of).remote("sheaf_test_leaf"), timeout=INSTALL_S
        )
        == 2
    )


# --- what is checked where it is written
# ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "error", "words"),
    [
        ({"working_dri": "."}, ValueError, "no field 'working_dri'"),
        ({"conda": "base"}, NotImplementedError, "'pip' or 'uv'"),
        ({"working_dir": "s3://bucket/code"}, ValueError, "URI of a .zip or .whl"),
        ({"working_dir": 3}, TypeError, "path of a directory"),
        ({"py_modules": "tools"}, TypeError, "want a list"),
        ({"py_modules": ["/no/such/module"]}, ValueError, "no package directory"),
        ({"pip": ["a"], "uv": ["b"]}, ValueError, "pip and uv"),
        ({"pip": {"package": ["a"]}}, ValueError, "no key 'package'"),
        ({"pip": "/no/such/requirements.txt"}, ValueError, "requirements file"),
        ({"excludes": "*.log"}, TypeError, "list of patterns"),
        ({"config": {"setup_timeout_seconds": -5}}, ValueError, "seconds above 0"),
        ({"env_vars": {"N": 1}}, TypeError, "are str"),
        ({"worker_process_setup_hook": "prepare"}, ValueError, "module.function"),
        ({"worker_process_setup_hook": 3}, TypeError, "want a function"),
    ],
)
def test_wrong_fields_are_named(env, error, words):
    with pytest.raises(error, match=words):
        runtime_env.plan(env)


def test_a_directory_that_is_too_large_names_its_largest_files(tmp_path):
    with open(tmp_path / "weights.bin", "wb") as file:
        file.truncate(runtime_env_package.MAX_BYTES + 1)
    (tmp_path / "small.py").write_text("")
    with pytest.raises(ValueError, match=r"(?s)at most 256 MiB.*excludes.*256 MiB  weights.bin"):
        runtime_env.plan({"working_dir": str(tmp_path)})
    assert (
        runtime_env.plan({"working_dir": str(tmp_path), "excludes": ["*.bin"]})
        .entries["@working_dir"]
        .startswith("dir-")
    )


def test_the_name_of_a_directory_is_its_content(tmp_path):
    def name(root):
        return runtime_env_package.of_directory(str(root), []).name

    for root in ("one", "two"):
        (tmp_path / root).mkdir()
        (tmp_path / root / "a.py").write_text("1")
    first = name(tmp_path / "one")
    assert first == name(tmp_path / "two")
    (tmp_path / "two" / "a.py").write_text("22")
    assert first != name(tmp_path / "two")
    (tmp_path / "one" / "a.py").chmod(0o755)
    assert first != name(tmp_path / "one")


def test_excludes_read_like_gitignore(tmp_path):
    for path in (
        "a.log",
        "keep.log",
        "data/x",
        "src/data/y",
        "src/deep/er/z.tmp",
        "src/m.py",
        ".git/config",
        "built/o",
        "ignored.txt",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / ".gitignore").write_text("ignored.txt\nbuilt/\n")
    (tmp_path / "src" / ".gitignore").write_text("# comment\n**/*.tmp\n")
    (tmp_path / "src" / "again").symlink_to(tmp_path)  # A loop.
    found = ignore_rules.files_below(str(tmp_path), ["*.log", "!keep.log", "/data"])
    assert found == [".gitignore", "keep.log", "src/.gitignore", "src/data/y", "src/m.py"]


HOLDER = """
import os, sys, time
os.environ["SHEAF_JOB"] = sys.argv[1] + "/job"
from sheaf._worker import environment

def make(path):
    if sys.argv[3] == "dies over it":
        os.makedirs(path)
        os.kill(os.getpid(), 9)
    os.makedirs(path)
    with open(path + "/data", "wb") as file:
        file.write(os.urandom(1 << 20))

print(environment._shared(sys.argv[2], time.monotonic() + 30, make), flush=True)
if sys.argv[3] == "stays":
    sys.stdin.read()
"""


def environment_user(session, name, how="leaves"):
    """A process that makes an environment of 1 MiB, or uses it."""
    user = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(session), name, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SHEAF_ENVIRONMENT_BYTES": str(5 << 19)},
    )
    said = user.stdout.readline().strip()
    assert how == "dies over it" or said == str(session / "environments" / name)
    if how != "stays":
        user.communicate()
    return user


def test_environments_on_disk_are_bounded_and_none_in_use_goes(tmp_path):
    there = lambda: {path.name for path in (tmp_path / "environments").iterdir() if path.is_dir()}  # noqa: E731
    holder = environment_user(tmp_path, "used", "stays")
    for name in ("b", "c", "d"):
        environment_user(tmp_path, name)
    assert there() == {"used", "d"}, "2.5 MiB hold two of them; the oldest is in use"
    environment_user(tmp_path, "e")
    environment_user(tmp_path, "used")
    environment_user(tmp_path, "f")
    assert there() == {"used", "f"}
    holder.communicate()
    environment_user(tmp_path, "g")
    assert there() == {"f", "g"}, "nobody uses the oldest any more"
    environment_user(tmp_path, "used")
    assert (tmp_path / "environments" / "used" / "data").stat().st_size == 1 << 20, (
        "one that went is made again"
    )


def test_what_a_worker_left_that_died_over_an_environment_goes(tmp_path):
    folder = tmp_path / "environments"
    environment_user(tmp_path, "a", "dies over it")
    assert (folder / "a").is_dir()
    environment_user(tmp_path, "b")
    assert (folder / "a").is_dir(), "it may be made again at any moment"
    os.utime(folder / "a.lock", (1, 1))
    environment_user(tmp_path, "c")
    assert sorted(path.name for path in folder.iterdir()) == [
        "b",
        "b.done",
        "b.lock",
        "c",
        "c.done",
        "c.lock",
    ]
    environment_user(tmp_path, "a")
    assert (folder / "a" / "data").exists()
