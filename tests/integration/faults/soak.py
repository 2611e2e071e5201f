# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runs the long forms of the fault rows and writes their figures into docs/soak.md.

Usage: soak.py FAULT_TEST SHEAF_PROGRAM [ROW...]

Rows of several nodes are run by node_rows.py, with this Python, which must be able to import the
package of this build. Rows that are not named keep the line of their last run. FAULT_SEED and
FAULT_COUNT are passed on. The row `sim` runs the simulator (tests/sim) for SIM_SECONDS, 300 unless
set, from a random seed on, with 1 to 50 nodes; row 22 runs FAULT_COUNT seeds, 100 unless set, of
its faults for each method. The row `monkey` runs random programs (tests/python/monkey.py) for
MONKEY_SECONDS, 3600 unless set, two thirds of them on three nodes.
"""

import datetime
import itertools
import os
import pathlib
import random
import re
import subprocess
import sys
import time

import node_rows

PROGRAM_ROWS = ["1", "2", "3", "4", "5", "7", "11", "14", "26", "27", "28", "35", "37"]
ROWS = sorted(
    [*PROGRAM_ROWS, "22", *node_rows.ROWS],
    key=lambda row: (not row.isdigit(), int(row) if row.isdigit() else 0, row),
) + ["sim", "monkey"]
FOLDER = pathlib.Path(__file__).resolve().parent
PAGE = FOLDER.parents[2] / "docs" / "soak.md"
ROW_LINE = r"\| (\d+|[a-z]+) \| 20\d\d-"
SIM_BATCH = 10  # Seeds of one process.
SIM_NODES = ["1", "2..9", "10..50"]  # Of its clusters, in turn.
BEGIN, END = "<!-- rows -->\n", "<!-- end of rows -->\n"


def run(program: str, row: str) -> tuple[list[str], bool]:
    """The table lines of one row."""
    begin = time.monotonic()
    command = (
        [program, f"[row{row}]"]
        if row in PROGRAM_ROWS
        else [sys.executable, str(FOLDER / "node_rows.py"), row]
    )
    done = subprocess.run(
        command,
        env=os.environ | {"FAULT_LONG": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=3600,
        check=False,
    )
    seconds = time.monotonic() - begin
    print(done.stdout, flush=True)
    seed = re.search(r"FAULT_SEED=(\d+)", done.stdout)
    figures = re.findall(rf"^row {row}: (.*)$", done.stdout, flags=re.M)
    passed = done.returncode == 0
    result = "skipped" if "SKIPPED:" in done.stdout else "passed" if passed else "FAILED"
    return [
        f"| {row} | {today()} | {seed.group(1) if seed else ''} | {seconds:.0f} s | "
        f"{result} | {'; '.join(figures)} |\n"
    ], passed


def today() -> str:
    """And of which commit the sources are, where that can be told."""
    done = subprocess.run(
        ["git", "-C", str(FOLDER), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d} {done.stdout.strip()}".strip()


def simulate(program: str) -> tuple[list[str], bool]:
    """The table line of the row `sim`: seeds from a random one on, until the time is over."""
    first = seed = random.randrange(1, 1 << 40)
    begin = time.monotonic()
    counts = {"runs": 0, "events": 0, "calls": 0}
    failed = []
    for nodes in itertools.cycle(SIM_NODES):
        if time.monotonic() - begin >= float(os.environ.get("SIM_SECONDS", "300")):
            break
        done = subprocess.run(
            [program, "--seed", str(seed), "--seeds", str(SIM_BATCH), "--nodes", nodes],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=3600,
            check=False,
        )
        if done.returncode != 0:
            print(done.stdout, flush=True)
            failed += re.findall(r"^seed (\d+ .*) fails", done.stdout, flags=re.M) or [
                f"{seed} and on, --nodes {nodes}: exit {done.returncode}"
            ]
        for name in counts:
            counts[name] += sum(int(n) for n in re.findall(rf"(\d+) {name}", done.stdout))
        seed += SIM_BATCH
    figures = ", ".join(f"{count} {name}" for name, count in counts.items())
    figures += f"; failed seeds: {', '.join(failed)}" if failed else ", no seed failed"
    print(f"row sim: {figures}", flush=True)
    took = time.monotonic() - begin
    return [
        f"| sim | {today()} | {first} | {took:.0f} s | "
        f"{'FAILED' if failed else 'passed'} | {figures} |\n"
    ], not failed


def every_method(program: str) -> tuple[list[str], bool]:
    """The table line of row 22."""
    first = int(os.environ.get("FAULT_SEED") or random.randrange(1, 1 << 32))
    begin = time.monotonic()
    done = subprocess.run(
        [
            program,
            "--methods",
            "--seed",
            str(first),
            "--seeds",
            os.environ.get("FAULT_COUNT", "100"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=3600,
        check=False,
    )
    print(done.stdout, flush=True)
    figures = "; ".join(
        re.findall(r"^(\d+ runs, .*|\d+ of \d+ methods .*)$", done.stdout, flags=re.M)
    )
    passed = done.returncode == 0
    took = time.monotonic() - begin
    return [
        f"| 22 | {today()} | {first} | {took:.0f} s | "
        f"{'passed' if passed else 'FAILED'} | {figures} |\n"
    ], passed


def monkey(_: str) -> tuple[list[str], bool]:
    """The table line of the row `monkey`."""
    seed, begin, seconds = (
        random.randrange(1, 1 << 32),
        time.monotonic(),
        float(os.environ.get("MONKEY_SECONDS", "3600")),
    )
    program, figures, passed = FOLDER.parents[1] / "python" / "monkey.py", [], True
    for nodes, part in ((1, 1 / 3), (3, 2 / 3)):
        command = [
            sys.executable,
            str(program),
            f"--nodes={nodes}",
            f"--seconds={seconds * part:.0f}",
            f"--seed={seed}",
            "--keep-going",
        ]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=2 * seconds + 1200,
            check=False,
        )
        print(done.stdout, flush=True)
        passed = passed and done.returncode == 0
        figures += re.findall(r"^monkey: (\d+ programs .*|memory of .*)$", done.stdout, flags=re.M)
    took = time.monotonic() - begin
    return [
        f"| monkey | {today()} | {seed} | {took:.0f} s | "
        f"{'passed' if passed else 'FAILED'} | {'; '.join(figures)} |\n"
    ], passed


def replace_lines(row: str, fresh: list[str]) -> None:
    """Puts the lines of a row into the page, which somebody may have edited since the last."""
    head, rest = PAGE.read_text().split(BEGIN)
    table, tail = rest.split(END)
    lines = {
        line.split("|")[1].strip(): [line]
        for line in table.splitlines(keepends=True)
        if re.match(ROW_LINE, line)
    }
    header = [line for line in table.splitlines(keepends=True) if not re.match(ROW_LINE, line)]
    lines[row] = fresh
    body = "".join("".join(lines[row]) for row in ROWS if row in lines)
    PAGE.write_text(head + BEGIN + "".join(header) + body + END + tail)


def main() -> int:
    program, sheaf, rows = sys.argv[1], sys.argv[2], sys.argv[3:] or ROWS
    for row in rows:
        if row not in ROWS:
            sys.exit(f"soak: there is no row '{row}'; want some of {' '.join(ROWS)}")
    simulator = str(pathlib.Path(program).resolve().parents[2] / "sim" / "sim")
    os.environ["SHEAF_EXECUTABLE"] = os.path.abspath(sheaf)
    os.environ["PYTHONPATH"] = str(pathlib.Path(sheaf).resolve().parents[1] / "python")
    failed = []
    for row in rows:
        print(f"== row {row}", flush=True)
        in_simulator = {"22": every_method, "sim": simulate, "monkey": monkey}.get(row)
        fresh, passed = in_simulator(simulator) if in_simulator else run(program, row)
        if not passed:
            failed.append(row)
        replace_lines(row, fresh)
    print(
        "soak: "
        f"{'all rows passed' if not failed else 'FAILED rows: ' + ' '.join(failed)}; "
        "see docs/soak.md"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
