# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""./do peer libraries [NAME...]: libraries of PyPI that speak Ray Core, on Sheaf and on Ray.

The programs are those of libraries/*.py, named for the library. Both sides use one virtual
environment, build/peers/libraries, which is made when it is not there (or is at $SHEAF_PEERS).
"""

import argparse
import os
import pathlib
import subprocess

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
        "xgboost_on_actors": ["xgboost_ray", "xgboost"],
        "lightgbm_on_actors": ["lightgbm_ray", "lightgbm"],
        "deephyper_search": ["deephyper"],
        "pymoo_minimum": ["pymoo"],
    },
}
COMMON = ["ray==2.60.*", "pandas<3", "nanobind-backend", "cloudpickle", "numpy"]


def interpreter():
    """Of the environment that has the libraries; makes it."""
    peers = os.environ.get("SHEAF_PEERS") or HERE.parents[1] / "build" / "peers"
    root = pathlib.Path(peers) / "libraries"
    python = root / "bin" / "python"
    stamp = root / "complete"
    wanted = [name for area in PACKAGES.values() for names in area.values() for name in names]
    if stamp.exists() and stamp.read_text().split() == wanted:
        return python
    print(f"installing {', '.join(wanted)} into {root}", flush=True)
    subprocess.run(["/usr/bin/python3", "-m", "venv", root], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for name in wanted:  # One by one: pip looks for a set of versions for an hour.
        if subprocess.run([*pip, name, *COMMON]).returncode:
            raise SystemExit(f"pip could not install {name} into {root}")
    stamp.write_text("\n".join(wanted))
    return python


def versions(python, names):
    text = "import importlib.metadata as m, sys; print(*(m.version(n) for n in sys.argv[1:]))"
    done = subprocess.run([python, "-c", text, *names], capture_output=True, text=True)
    return ", ".join(" ".join(pair) for pair in zip(names, done.stdout.split()))


def main(arguments):
    parser = argparse.ArgumentParser(prog="./do peer libraries", description=__doc__)
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--log", action="store_true", help="let programs print")
    options = parser.parse_args(arguments)
    every = [name for area in PACKAGES.values() for name in area]
    for name in options.names:
        if name not in every:
            raise SystemExit(f"there is no program {name}: {', '.join(every)}")
    python = interpreter()
    os.environ.setdefault("PEER_LONGEST", "300")  # Some import for a minute.
    log = None if options.log else subprocess.DEVNULL
    bad = 0
    for area, programs in PACKAGES.items():
        names = [name for name in programs if not options.names or name in options.names]
        if not names:
            continue
        ray, sheaf = (
            Side(name, "libraries", python).run(area, names, log) for name in ("ray", "sheaf")
        )
        for name in names:
            equal = compare(area, [name], ray, sheaf)[0]
            bad += not equal
            print(f"{name}: {versions(python, programs[name])}: {'equal' if equal else 'differs'}")
            for line in sheaf[name] if equal else []:
                print(f"    {line[:100]}")
    return 1 if bad else 0
