# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets of sheaf.data on this machine, beside what the same costs without them, and beside Ray.

    ./do bench data [--peer ray] [--json FILE] [--scale N] [--only WORD,WORD...] [--rounds N]

Rows are those of data_rows.py; of each the floor, Sheaf and Ray are measured in turns, each in a
process of its own. Files are made once into build/bench_data (data_made.py); at scale 10 they take
4 GB, and rows spill up to 22 GB. It needs pyarrow, pandas and duckdb in this Python or in that of
$SHEAF_PEERS/data; Ray is that of $SHEAF_PEERS/ray.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import data_made
import peer_python

HERE = pathlib.Path(__file__).resolve().parent
MADE = HERE.parent / "build" / "bench_data"
LONGEST_S = 900  # Of a row on one side.
PEERS = ("ray", "tune")
LEAST_DISK_GB = 4  # Per scale: of files, and of what rows spill.


def need_room(scale):
    """Refuses what would fill the disk or the memory."""
    free = shutil.disk_usage(MADE.parent).free / 1e9
    if free < LEAST_DISK_GB * scale + 2:
        raise SystemExit(
            f"bench_data: --scale {scale:g} may need {LEAST_DISK_GB * scale + 2:g} GB of disk "
            f"below {MADE.parent}, and {free:.0f} GB are free: want a smaller scale"
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    if memory < 2 + scale:
        raise SystemExit(
            f"bench_data: --scale {scale:g} wants {2 + scale:g} GB of memory, and there are "
            f"{memory:.0f}: want a smaller scale"
        )


def measured(python, side, name, scale, folder):
    """The figure of a row on one side; None: it failed, which is told."""
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    if side == "ray":
        environment.pop("PYTHONPATH", None)
    command = [python, HERE / "data_rows.py", side, name, str(scale), str(folder)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired:
        print(f"    {side}: {name}: not done in {LONGEST_S} s", flush=True)
        return None
    for line in reversed(done.stdout.splitlines()):
        if line.startswith('{"figure"'):
            notes = [line for line in done.stderr.splitlines() if line.startswith("spilled")]
            if notes:
                print(f"    {side}: {name}: {notes[-1]}", flush=True)
            return json.loads(line)["figure"]
    told = [line for line in done.stderr.splitlines() if line.strip()] or ["no word"]
    print(f"    {side}: {name}: {told[-1][:200]}", flush=True)
    return None


def ratio(row, figures, other):
    """How many times better Sheaf is than another side."""
    ours, theirs = figures.get("sheaf"), figures.get(other)
    if not ours or not theirs:
        return None
    return theirs / ours if row.better == "lower" else ours / theirs


def shown(value):
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", default="", help="words of names of rows")
    parser.add_argument("--peer", choices=["ray"])
    parser.add_argument("--scale", type=float, default=1, help="10: that of the documents")
    parser.add_argument("--rounds", type=int, default=1, help="whose medians count")
    given = parser.parse_args()
    for module in ("pyarrow", "duckdb"):
        peer_python.go_on_where(module, "data", "tune")
        if importlib.util.find_spec(module) is None:
            parser.error(f"{module} is not installed: build/venv/bin/pip install 'sheaf[data]'")
    import data_rows

    words = [word.lower() for word in given.only.split(",") if word]
    rows = {
        name: row
        for name, row in data_rows.ROWS.items()
        if not words or any(word in name.lower() for word in words)
    }
    if not rows:
        parser.error(f"--only {given.only}: no row has that in its name")
    need_room(given.scale)
    folder = MADE / f"{given.scale:g}"
    subprocess.run([sys.executable, data_made.__file__, folder, str(given.scale)], check=True)
    sides = {"floor": sys.executable, "sheaf": sys.executable}
    if given.peer:
        found = (one for one in peer_python.pythons(*PEERS) if peer_python.has(one, "ray.data"))
        sides["ray"] = next(found, None)
        if sides["ray"] is None:
            raise SystemExit(
                "bench_data: no Python has ray.data: set SHEAF_PEERS (CONTRIBUTING.md)"
            )
    told = []
    print(f"{'':36}" + "".join(f"{side:>10}" for side in sides) + "  of floor  of Ray  aim")
    for name, row in rows.items():
        lacking = [one for one in row.needs if importlib.util.find_spec(one) is None]
        if lacking:
            print(f"{name:36} left out: there is no {', '.join(lacking)}", flush=True)
            continue
        figures = {}
        for side, python in sides.items():
            if (side == "floor" and row.floor is None) or (side == "ray" and row.own):
                continue
            some = [measured(python, side, name, given.scale, folder) for _ in range(given.rounds)]
            some = [one for one in some if one is not None]
            figures[side] = statistics.median(some) if some else None
        cells = "".join(f"{shown(figures.get(side)):>10}" for side in sides)
        print(
            f"{name:36}{cells}{shown(ratio(row, figures, 'floor')):>10}"
            f"{shown(ratio(row, figures, 'ray')):>8}  {row.unit}; {row.aim}",
            flush=True,
        )
        told.append(
            {"name": name, "unit": row.unit, "better": row.better, "aim": row.aim}
            | {side: figures.get(side) for side in ("sheaf", "floor", "ray")}
        )
    if given.json:
        text = json.dumps({"scale": given.scale, "rows": told}, indent=1)
        pathlib.Path(given.json).write_text(text + "\n")


if __name__ == "__main__":
    main()
