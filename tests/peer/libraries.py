# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""./do peer libraries [--record] [NAME...]: libraries of PyPI that speak Ray Core, on Sheaf and on Ray.

The programs are those of libraries/*.py, named for the library. Both sides use one virtual
environment, build/peers/libraries, which is made when it is not there (or is at $SHEAF_PEERS); what
needs torch uses another, which sees that of `./do peer torch`.
"""

import argparse
import ast
import datetime
import json
import os
import pathlib
import subprocess

import newest_torch
from peer import HERE, Side, compare

PACKAGES = {  # By area and program: what pip installs.
    "tables": {
        "modin_frames": ["modin"],
        "daft_queries": ["daft"],
        "hamilton_graph": ["sf-hamilton"],
        "swifter_apply": ["swifter"],
    },
    "learning": {
        "scikit_learn_by_joblib": ["joblib", "scikit-learn"],
        "xgboost_on_actors": ["xgboost_ray", "xgboost<2.1"],  # From 2.1 on its tracker is another.
        "lightgbm_on_actors": ["lightgbm_ray", "lightgbm"],
        "deephyper_search": ["deephyper"],
        "pymoo_minimum": ["pymoo"],
        "sktime_evaluation": ["sktime"],
    },
    "flows": {
        "dask_arrays": ["dask"],
        "flower_simulation": ["flwr"],
        "hydra_sweep": ["hydra-core", "hydra-ray-launcher"],
        "datatrove_pipeline": ["datatrove"],
        "prefect_flow": ["prefect-ray"],
    },
    "neural": {
        "evotorch_search": ["evotorch"],
        "tianshou_environments": ["tianshou"],
        "verl_worker_groups": ["verl"],
        "transformers_search": ["transformers", "accelerate"],
    },
}
WITH_TORCH = ("neural",)
# Asks for a cloudpickle that knows no Python of today.
WITHOUT_WHAT_IT_NEEDS = ("hydra-ray-launcher",)
COMMON = ["ray==2.60.*", "pandas<3", "nanobind-backend", "cloudpickle>=3", "numpy"]
RECORDED = HERE / "answers" / "libraries.json"  # {program: [versions, end, day]}; see from_ray.py.
NOT_RUN = ("ends in ", "hangs", "its process ends: ")  # How program.py and peer.py say so.


def interpreter(area):
    """Of the environment that has the libraries of an area; makes it."""
    peers = os.environ.get("SHEAF_PEERS") or HERE.parents[1] / "build" / "peers"
    with_torch = area in WITH_TORCH
    root = pathlib.Path(peers) / ("libraries-torch" if with_torch else "libraries")
    python = root / "bin" / "python"
    stamp = root / "complete"
    areas = [a for a in PACKAGES if (a in WITH_TORCH) == with_torch]
    wanted = [name for a in areas for names in PACKAGES[a].values() for name in names]
    if stamp.exists() and stamp.read_text().split() == wanted:
        return python
    print(f"installing {', '.join(wanted)} into {root}", flush=True)
    if python.exists():
        pass  # Made for fewer libraries: pip adds those that are new.
    elif with_torch:
        use_torch_of(newest_torch.interpreter(None), root)
    else:
        subprocess.run(["/usr/bin/python3", "-m", "venv", root], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for name in wanted:  # One by one: pip looks for a set of versions for an hour.
        more = ["--no-deps"] if name in WITHOUT_WHAT_IT_NEEDS else COMMON
        if subprocess.run([*pip, name, *more]).returncode:
            raise SystemExit(f"pip could not install {name} into {root}")
    stamp.write_text("\n".join(wanted))
    return python


def use_torch_of(python, root):
    """Makes an environment that sees the packages of another one's interpreter."""
    subprocess.run([python, "-m", "venv", root], check=True)
    text = "import sysconfig; print(sysconfig.get_path('purelib'))"
    seen, own = (
        subprocess.run([p, "-c", text], capture_output=True, text=True, check=True).stdout.strip()
        for p in (python, root / "bin" / "python")
    )
    pathlib.Path(own, "torch.pth").write_text(seen + "\n")


def versions(python, names):
    names = [name.partition("<")[0] for name in names]
    text = "import importlib.metadata as m, sys; print(*(m.version(n) for n in sys.argv[1:]))"
    done = subprocess.run([python, "-c", text, *names], capture_output=True, text=True)
    return ", ".join(" ".join(pair) for pair in zip(names, done.stdout.split(), strict=True))


def record(name, with_versions, end):
    known = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    known[name] = [with_versions, end, str(datetime.date.today())]
    RECORDED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def what_it_does(area):
    """{program: the first line of its comment}."""
    module = ast.parse((HERE / "libraries" / f"{area}.py").read_text())
    found = (node for node in module.body if isinstance(node, ast.FunctionDef))
    return {node.name: (ast.get_docstring(node) or "").partition("\n")[0] for node in found}


def main(arguments):
    parser = argparse.ArgumentParser(prog="./do peer libraries", description=__doc__)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--log", action="store_true", help="let programs print")
    parser.add_argument(
        "--record", action="store_true", help="write versions and ends for the page"
    )
    options = parser.parse_args(arguments)
    every = [name for area in PACKAGES.values() for name in area]
    for name in options.names:
        if name not in every:
            raise SystemExit(f"there is no program {name}: {', '.join(every)}")
    os.environ.setdefault("PEER_LONGEST", "300")  # Some import for a minute.
    log = None if options.log else subprocess.DEVNULL
    counts = {"equal": 0, "differs": 0, "does not run on Ray": 0}
    for area, programs in PACKAGES.items():
        names = [name for name in programs if not options.names or name in options.names]
        if not names:
            continue
        python = interpreter(area)
        comments = what_it_does(area)
        ray, sheaf = (
            Side(name, "libraries", python).run(area, names, log) for name in ("ray", "sheaf")
        )
        for name in names:
            end = "equal" if compare(area, [name], ray, sheaf)[0] else "differs"
            if any(line.startswith(NOT_RUN) for line in ray[name]):
                end = "does not run on Ray"
            counts[end] += 1
            with_versions = versions(python, programs[name])
            print(f"{name}: {with_versions}: {comments[name]}: {end}")
            if options.record:
                record(name, with_versions, end)
            for line in sheaf[name]:
                print(f"    {line[:100]}", flush=True)
    print(", ".join(f"{count} {end}" for end, count in counts.items()))
    return 0 if counts["equal"] == sum(counts.values()) else 1
