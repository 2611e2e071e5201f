# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Experiments of sheaf.tune on this machine, beside what their parts cost alone, and beside Ray.

    ./do bench tune [--peer ray] [--json FILE] [--only WORD,WORD...]

Rows are those of tune_rows.py. Ray does fewer trials of a row; what the
first takes is measured apart, and what each further one adds is scaled. The rows of Optuna need
optuna (for databases sqlalchemy and psycopg2) in this Python, or in $SHEAF_PEERS/tune, which then
runs all; what lacks something is left out, by name. Ray is that of $SHEAF_PEERS/tune or
$SHEAF_PEERS/ray.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import peer_python
import postgres_server
import tune_rows

PEER_LIMIT_S = 600
PEERS = ("tune", "ray")  # Below $SHEAF_PEERS.


def lacking(row):
    """What a row needs and is not there: modules of this Python, and programs."""
    found = [name for name in row.programs if postgres_server.found(name) is None]
    for name in row.needs:
        try:
            if importlib.util.find_spec(name) is None:
                found.append(name)
        except ModuleNotFoundError:
            found.append(name)
    return found


def chosen(words):
    return {
        name: row
        for name, row in tune_rows.ROWS.items()
        if not words or any(word.lower() in name.lower() for word in words)
    }


def measure_here(words, of_peer):
    """{name: {"figure", "floor"}} of the library that the environment names, in this process."""
    runtime = tune_rows.library()
    tune_rows.library("tune")  # Before workers start: they import what the driver has.
    # As functions of a program are: a process that a trial begins in imports nothing for them.
    for module in (tune_rows, postgres_server):
        tune_rows.library("cloudpickle").register_pickle_by_value(module)
    runtime.init(num_cpus=2, log_to_driver=False)
    figures = {}
    for name, row in chosen(words).items():
        count = row.peer_count if of_peer else row.count
        missing = lacking(row)
        if count == 0 or missing:
            if missing:
                print(f"{name:36} left out: there is no {', '.join(missing)}", flush=True)
            continue
        floor = None
        if row.floor is not None and not of_peer:
            floor = row.floor(row.floor_count)
        figures[name] = {"figure": row.measure(count), "floor": floor}
        side = os.environ.get("BENCH_TUNE_OF", "sheaf")
        shown = "" if floor is None else f"   floor {floor:.4g}"
        print(f"{name:36} {side:6} {figures[name]['figure']:10.4g} {row.unit}{shown}", flush=True)
    runtime.shutdown()
    return figures


def run_peer(name, words):
    """Its figures; of rows that it did within the limit."""
    python = next(
        (one for one in peer_python.pythons(*PEERS) if peer_python.has(one, f"{name}.tune")), None
    )
    if python is None:
        raise SystemExit(
            f"bench_tune: no Python has {name}.tune: set SHEAF_PEERS (CONTRIBUTING.md)"
        )
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        figures = {}
        for row_name, row in chosen(words).items():
            if row.peer_count == 0:
                continue
            command = [python, __file__, "--json", file.name, "--only", row_name.replace(",", ".")]
            environment = {**os.environ, "BENCH_TUNE_OF": name, "RAY_AIR_NEW_OUTPUT": "0"}
            environment.pop("PYTHONPATH", None)
            try:
                subprocess.run(
                    command, env=environment, check=True, timeout=PEER_LIMIT_S, stderr=sys.stderr
                )
            except subprocess.SubprocessError as error:
                print(f"{row_name:36} {name}: {error}", flush=True)
                continue
            figures.update(json.loads(pathlib.Path(file.name).read_text()))
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", default="", help="words of names of rows")
    parser.add_argument("--peer", choices=["ray"])
    given = parser.parse_args()
    words = [word.replace(".", ",") for word in given.only.split(",") if word]
    of_peer = "BENCH_TUNE_OF" in os.environ
    if not chosen(words):
        parser.error(f"--only: no row has one of {', '.join(words)} in its name")
    if of_peer:
        figures = measure_here(words, True)
        pathlib.Path(given.json).write_text(json.dumps(figures))
        return
    peer_python.go_on_where("optuna", *PEERS)
    ours = measure_here(words, False)
    theirs = run_peer(given.peer, words) if given.peer else {}
    rows = [
        {
            "name": name,
            "unit": tune_rows.ROWS[name].unit,
            "better": tune_rows.ROWS[name].better,
            "sheaf": figure["figure"],
            "floor": figure["floor"],
            "ray": theirs.get(name, {}).get("figure"),
        }
        for name, figure in ours.items()
    ]
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
