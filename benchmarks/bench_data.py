# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Datasets of sheaf.data on this machine, beside what the same costs without them, and beside Ray.

    ./do bench data [--peer ray] [--json FILE] [--scale N] [--only WORD,WORD...] [--rounds N]

Rows are those of data_rows.py. The floor, Sheaf and Ray are measured in turns, each in a process of
its own: small rows, maps, tables, orders and streams in one process each. Files are made once into
build/bench_data (data_made.py); at scale 10 they take 4 GB, and rows spill up to 22 GB. It needs
pyarrow, pandas and duckdb in this Python or in that of $SHEAF_PEERS/data; Ray is that of
$SHEAF_PEERS/ray.
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
import tempfile

import data_made
import peer_python

HERE = pathlib.Path(__file__).resolve().parent
MADE = HERE.parent / "build" / "bench_data"
LONGEST_S = 900  # Of a session on one side.
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


def measured(python, side, names, scale, folder, torch):
    """The figures of rows on one side, measured in one process; in a further one behind a row of
    which the first has died. A row that failed is told, and is not among them."""
    figures, left = {}, list(names)
    while left:
        said, told = _session(python, side, left, scale, folder, torch)
        for one in said:
            left.remove(one["name"])
            if "failed" in one:
                print(f"    {side}: {one['name']}: {one['failed']}", flush=True)
            else:
                figures[one["name"]] = one["figure"]
        if left:
            print(f"    {side}: {left.pop(0)}: {told[:200]}", flush=True)
    return figures


def _session(python, side, names, scale, folder, torch):
    """What data_rows.py says of some rows, and its last words."""
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
    environment["BENCH_TORCH"] = "1" if torch else ""
    if side == "ray":
        environment.pop("PYTHONPATH", None)
    command = [python, HERE / "data_rows.py", side, str(scale), str(folder), *names]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        late = ""
        try:
            subprocess.run(command, env=environment, stdout=out, stderr=errors, timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            late = f"not done in {LONGEST_S} s"
        out.seek(0)
        errors.seek(0)
        lines = [line for line in errors.read().splitlines() if line.strip()]
        said = [json.loads(line) for line in out.read().splitlines() if line.startswith('{"name"')]
    for line in lines:
        if line.startswith("spilled"):
            print(f"    {side}: {line}", flush=True)
    return said, late or (lines or ["no word"])[-1]


def sessions(rows):
    """The names of rows that are measured together."""
    together = {}
    for name, row in rows.items():
        together.setdefault(row.session or name, []).append(name)
    return list(together.values())


def medians(python, side, names, given, folder, torch):
    """Of some rounds."""
    rounds = [
        measured(python, side, names, given.scale, folder, torch) for _ in range(given.rounds)
    ]
    found = {name: [figures[name] for figures in rounds if name in figures] for name in names}
    return {name: statistics.median(some) for name, some in found.items() if some}


def ratio(row, figures, other):
    """How many times better Sheaf is than another side."""
    ours, theirs = figures.get("sheaf"), figures.get(other)
    if not ours or not theirs:
        return None
    return theirs / ours if row.better == "lower" else ours / theirs


def shown(value):
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def measures(row, side):
    """Whether a row has a figure of this side."""
    return not ((side == "floor" and row.floor is None) or (side == "ray" and row.own))


def possible(rows):
    """Those for which all modules are there; others are told."""
    kept = {}
    for name, row in rows.items():
        lacking = [one for one in row.needs if importlib.util.find_spec(one) is None]
        if lacking:
            print(f"{name:36} left out: there is no {', '.join(lacking)}", flush=True)
        else:
            kept[name] = row
    return kept


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", default="", help="words of names of rows")
    parser.add_argument("--peer", choices=["ray"])
    parser.add_argument(
        "--scale",
        type=float,
        default=0.25,
        help="10: that of the documents; 0.25: 4 minutes with Ray",
    )
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
    rows = possible(rows)
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
    torch = all(peer_python.has(python, "torch") for python in sides.values())
    told = []
    print(f"{'':36}" + "".join(f"{side:>10}" for side in sides) + "  of floor  of Ray  aim")
    for names in sessions(rows):
        found = {}
        for side, python in sides.items():
            asked = [name for name in names if measures(rows[name], side)]
            if asked:
                found[side] = medians(python, side, asked, given, folder, torch)
        for name in names:
            row = rows[name]
            figures = {side: some.get(name) for side, some in found.items()}
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
