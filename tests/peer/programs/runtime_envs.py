# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runtime environments: variables, directories, modules, hooks, inheritance, validation."""

import os
import pathlib
import sys
import tempfile

import ray
from program import main, outcome, program, say
from ray.runtime_env import RuntimeEnv, RuntimeEnvConfig


@ray.remote
def variable(name):
    return os.environ.get(name)


@ray.remote
class Holder:
    def variable(self, name):
        return os.environ.get(name)


def env(**variables):
    return {"env_vars": variables}


@program
def variables():
    say(ray.get(variable.options(runtime_env=env(PEER_A="1")).remote("PEER_A")))
    say(ray.get(variable.remote("PEER_A")))
    holder = Holder.options(runtime_env=env(PEER_A="2")).remote()
    say(ray.get(holder.variable.remote("PEER_A")))
    ray.kill(holder)
    say(ray.get(variable.options(runtime_env=RuntimeEnv(env_vars={"A_B": "x y"})).remote("A_B")))
    say(ray.get(variable.options(runtime_env=env(PEER_A="")).remote("PEER_A")))
    say(os.environ.get("PEER_A"))


@program
def variables_use_others():
    say(ray.get(variable.options(runtime_env=env(PEER_P="${HOME}:x")).remote("PEER_P")) != "")
    home = os.environ.get("HOME", "")
    found = ray.get(variable.options(runtime_env=env(PEER_P="${HOME}:x")).remote("PEER_P"))
    say(found == f"{home}:x")
    found = ray.get(variable.options(runtime_env=env(PATH="/peer/bin:${PATH}")).remote("PATH"))
    say(found.startswith("/peer/bin:"), len(found) > len("/peer/bin:${PATH}"))


@program
def at_decoration():
    @ray.remote(runtime_env=env(PEER_A="decorated"))
    def f():
        return os.environ.get("PEER_A"), os.environ.get("PEER_B")

    say(ray.get(f.remote()))
    say(ray.get(f.options(runtime_env=env(PEER_A="options")).remote()))
    say(ray.get(f.options(runtime_env=env(PEER_B="b")).remote()))
    say(ray.get(f.options(runtime_env={}).remote()))
    say(ray.get(f.options(runtime_env=None).remote()))
    say(ray.get(f.options(num_cpus=1).remote()))


@program
def children_inherit():
    @ray.remote
    def parent(**options):
        child = variable.options(**options) if options else variable
        return ray.get([child.remote(name) for name in ("PEER_A", "PEER_B")])

    outer = parent.options(runtime_env=env(PEER_A="a"))
    say(ray.get(outer.remote()))
    say(ray.get(outer.remote(runtime_env=env(PEER_B="b"))))
    say(ray.get(outer.remote(runtime_env=env(PEER_A="c"))))
    say(ray.get(outer.remote(runtime_env={})))


@program
def actors_inherit():
    @ray.remote
    class Parent:
        def child(self):
            holder = Holder.remote()
            return ray.get(holder.variable.remote("PEER_A"))

        def task(self):
            return ray.get(variable.remote("PEER_A"))

    parent = Parent.options(runtime_env=env(PEER_A="a"), num_cpus=0).remote()
    say(ray.get([parent.child.remote(), parent.task.remote()]))
    ray.kill(parent)


@program(alone=True)
def of_the_job():
    ray.init(
        num_cpus=2,
        runtime_env=env(PEER_A="job", PEER_B="b"),
        include_dashboard=False,
        log_to_driver=False,
    )
    say(ray.get([variable.remote("PEER_A"), variable.remote("PEER_B")]))
    other = variable.options(runtime_env=env(PEER_A="own"))
    say(ray.get([other.remote("PEER_A"), other.remote("PEER_B")]))
    empty = variable.options(runtime_env={})
    say(ray.get([empty.remote("PEER_A"), empty.remote("PEER_B")]))
    say(os.environ.get("PEER_A"))
    say(ray.get_runtime_context().runtime_env.get("env_vars"))


@program(alone=True)
def a_working_directory_of_the_job():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        (root / "data.txt").write_text("data")
        (root / "peer_module.py").write_text("VALUE = 7\n")
        (root / "skip.log").write_text("no")
        (root / "sub").mkdir()
        (root / "sub" / "deep.txt").write_text("deep")
        ray.init(
            num_cpus=2,
            runtime_env={"working_dir": directory, "excludes": ["*.log"]},
            include_dashboard=False,
            log_to_driver=False,
        )

        @ray.remote
        def look():
            import peer_module

            return sorted(os.listdir()), open("sub/deep.txt").read(), peer_module.VALUE

        say(ray.get(look.remote()))
        say(ray.get(look.remote())[0] != [], os.getcwd() != directory)

        @ray.remote
        class Looks:
            def look(self):
                return open("data.txt").read(), os.getcwd() != directory

        say(ray.get(Looks.remote().look.remote()))


@program(alone=True)
def modules_of_the_job():
    with tempfile.TemporaryDirectory() as directory:
        package = pathlib.Path(directory) / "peer_package"
        package.mkdir()
        (package / "__init__.py").write_text("VALUE = 1\n")
        (package / "inner.py").write_text("VALUE = 2\n")
        ray.init(
            num_cpus=2,
            runtime_env={"py_modules": [str(package)]},
            include_dashboard=False,
            log_to_driver=False,
        )

        @ray.remote
        def use():
            import peer_package
            import peer_package.inner

            return peer_package.VALUE, peer_package.inner.VALUE

        say(ray.get(use.remote()))


@program(alone=True)
def modules_as_objects():
    with tempfile.TemporaryDirectory() as directory:
        package = pathlib.Path(directory) / "peer_package"
        package.mkdir()
        (package / "__init__.py").write_text("VALUE = 1\n")
        sys.path.insert(0, directory)
        import peer_package

        sys.path.pop(0)
        ray.init(
            num_cpus=2,
            runtime_env={"py_modules": [peer_package]},
            include_dashboard=False,
            log_to_driver=False,
        )

        @ray.remote
        def use():
            import peer_package

            return peer_package.VALUE

        say(ray.get(use.remote()))


@program(alone=True)
def a_hook_of_the_job():
    def hook():
        os.environ["PEER_HOOK"] = "ran"

    ray.init(
        num_cpus=2,
        runtime_env={"worker_process_setup_hook": hook},
        include_dashboard=False,
        log_to_driver=False,
    )
    say(ray.get(variable.remote("PEER_HOOK")))
    say(ray.get(Holder.remote().variable.remote("PEER_HOOK")))
    say(os.environ.get("PEER_HOOK"))


@program(alone=True)
def a_hook_that_fails():
    def hook():
        raise ValueError("the hook fails")

    def run():
        ray.init(
            num_cpus=2,
            runtime_env={"worker_process_setup_hook": hook},
            include_dashboard=False,
            log_to_driver=False,
        )
        return ray.get(variable.remote("PEER_HOOK"), timeout=30)

    outcome(run, words=["the hook fails"])


@program(alone=True)
def wrong_environments_of_the_job():
    for fields in (
        {"working_dir": "/no/such/directory"},
        {"working_dir": 5},
        {"working_dir": "s3://bucket/file.txt"},
        {"py_modules": "module"},
        {"py_modules": ["/no/such/module"]},
        {"py_modules": [5]},
        {"env_vars": ["A"]},
        {"env_vars": {"A": 1}},
        {"env_vars": {1: "A"}},
        {"excludes": "*.log"},
        {"excludes": [1]},
        {"pip": 5},
        {"pip": ["x"], "conda": "base"},
        {"pip": ["x"], "uv": ["y"]},
        {"worker_process_setup_hook": 5},
        {"config": 5},
        {"config": {"setup_timeout_seconds": 0}},
        {"config": {"setup_timeout_seconds": "1"}},
        {"config": {"eager_install": 1}},
    ):
        say(fields)
        outcome(
            lambda f=fields: (
                type(
                    ray.init(
                        num_cpus=1, runtime_env=f, include_dashboard=False, log_to_driver=False
                    )
                ).__name__
            )
        )
        ray.shutdown()


@program
def wrong_environments_of_calls():
    for fields in (
        5,
        "env",
        ["env_vars"],
        {"env_vars": {"A": 1}},
        {"env_vars": {1: "A"}},
        {"env_vars": ["A"]},
        {"working_dir": "/no/such/directory"},
        {"working_dir": "."},
        {"py_modules": ["/no/such/module"]},
        {"pip": 5},
        {"pip": ["x"], "uv": ["y"]},
        {"config": {"setup_timeout_seconds": 0}},
    ):
        say(fields)
        outcome(lambda f=fields: type(variable.options(runtime_env=f)).__name__)
        outcome(lambda f=fields: type(Holder.options(runtime_env=f)).__name__)


@program
def wrong_environments_say_why():
    outcome(
        lambda: variable.options(runtime_env=env(A=1)),
        words=["runtime_env['env_vars'] must be of type Dict[str, str]"],
    )
    outcome(
        lambda: variable.options(runtime_env={"working_dir": "."}),
        words=["is not a valid URI", "only supported at the job level"],
    )
    outcome(lambda: variable.options(runtime_env=5), words=["runtime_env must be"])


@program
def the_class_checks():
    for fields in (
        {"env_vars": {"A": "a"}},
        {"env_vars": {"A": 1}},
        {"env_vars": "A"},
        {"working_dir": "/no/such/directory"},
        {"working_dir": "https://example.com/a.zip"},
        {"py_modules": ["/no/such"]},
        {"pip": ["x"]},
        {"pip": {"packages": ["x"], "pip_check": False}},
        {"pip": {"packages": ["x"], "nope": 1}},
        {"pip": {"pip_check": False}},
        {"pip": {"packages": 5}},
        {"uv": ["x"]},
        {"uv": {"nope": 1}},
        {"pip": ["x"], "uv": ["y"]},
        {"config": {"setup_timeout_seconds": 5}},
        {"config": {"setup_timeout_seconds": -2}},
        {"config": RuntimeEnvConfig(setup_timeout_seconds=5)},
        {"config": 5},
        {},
    ):
        say(fields)
        outcome(lambda f=fields: sorted(RuntimeEnv(**f)))


@program
def unknown_fields():
    outcome(lambda: RuntimeEnv(no_such_field=1).get("no_such_field"))
    outcome(
        lambda: ray.get(variable.options(runtime_env={"no_such_field": 1}).remote("HOME")) != ""
    )
    outcome(
        lambda: ray.get(variable.options(runtime_env={"env_vars": {}, "x": 1}).remote("HOME")) != ""
    )


@program
def the_class_as_a_dict():
    made = RuntimeEnv(env_vars={"A": "a"}, config={"setup_timeout_seconds": 5})
    say(isinstance(made, dict), made["env_vars"], made.get("pip"), "pip" in made)
    say(made.env_vars(), made.working_dir_uri(), made.py_modules_uris())
    say(made.has_pip(), made.has_conda(), made.has_working_dir(), made.has_uv())
    say(made.get("config"))
    say(made == RuntimeEnv(env_vars={"A": "a"}, config={"setup_timeout_seconds": 5}))
    say(made.to_dict())
    say(RuntimeEnv.deserialize(made.serialize()) == made)
    made["env_vars"] = {"B": "b"}
    say(made["env_vars"])
    made.set("env_vars", {"C": "c"})
    say(made["env_vars"])
    outcome(made.set, "env_vars", {"C": 1})
    outcome(lambda: made["nothing"])


@program
def configurations():
    outcome(lambda: dict(RuntimeEnvConfig()))
    outcome(lambda: dict(RuntimeEnvConfig(setup_timeout_seconds=10, eager_install=False)))
    outcome(lambda: dict(RuntimeEnvConfig(setup_timeout_seconds=-1)))
    outcome(RuntimeEnvConfig, setup_timeout_seconds=0)
    outcome(RuntimeEnvConfig, setup_timeout_seconds=1.5)
    outcome(RuntimeEnvConfig, eager_install=1)
    outcome(RuntimeEnvConfig, log_files="a")
    outcome(RuntimeEnvConfig, nope=1)


@program
def the_environment_is_told():
    @ray.remote
    def tell():
        context = ray.get_runtime_context()
        return context.runtime_env.get("env_vars"), type(context.runtime_env).__name__

    say(ray.get(tell.options(runtime_env=env(PEER_A="1")).remote()))
    say(ray.get(tell.remote()))
    say(type(ray.get_runtime_context().get_runtime_env_string()).__name__)
    say(dict(ray.get_runtime_context().runtime_env))


@program
def packages_that_do_not_exist():
    broken = {"pip": ["sheaf-peer-no-such-package==9.9.9"], "config": {"setup_timeout_seconds": 50}}
    outcome(
        ray.get,
        variable.options(runtime_env=broken).remote("A"),
        timeout=55,
        words=["Failed to set up runtime environment"],
    )


if __name__ == "__main__":
    main()
