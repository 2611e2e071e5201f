# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runs the long forms of the fault rows and writes their figures into docs/evidence/soak.md.

Usage: soak.py FAULT_TEST SHEAF_PROGRAM [ROW...]

Rows of several nodes are run by node_rows.py, with this Python, which must be able to import the
package of this build. Rows that are not named keep the line of their last run. FAULT_SEED and
FAULT_COUNT are passed on. The row `sim` runs the simulator (tests/sim) for SIM_SECONDS, 300 unless
set, from a random seed on, with 1 to 50 nodes; `sim_jobs` runs SIM_JOBS seeds, 100,000 unless set,
of jobs that are submitted while everything fails, with 1 to 4 nodes; row 22 runs FAULT_COUNT seeds, 100 unless set, of
its faults for each method. The row `monkey` runs random programs (tests/python/monkey.py) for
MONKEY_SECONDS, 3600 unless set, two thirds of them on three nodes; `churn`, `interrupts`, `job_kills`,
`tune_kills` and `data_kills` are the programs of that name there. The row `scale` runs `sim --scale SIM_SCALE`, 1000 unless set,
and writes docs/evidence/simulation.md; so does `looks`, of `sim --looks SIM_SCALE`.
"""

import itertools
import os
import pathlib
import random
import re
import subprocess
import sys
import time

import node_rows

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))
import evidence  # noqa: E402

PROGRAM_ROWS = ["1", "2", "3", "4", "5", "7", "11", "14", "26", "27", "28", "35", "37"]
ROWS = sorted(
    [*PROGRAM_ROWS, "22", *node_rows.ROWS],
    key=lambda row: (not row.isdigit(), int(row) if row.isdigit() else 0, row),
) + [
    "sim",
    "sim_jobs",
    "scale",
    "looks",
    "monkey",
    "churn",
    "interrupts",
    "job_kills",
    "tune_kills",
    "data_kills",
]
FOLDER = pathlib.Path(__file__).resolve().parent
SIM_BATCH = 10  # Seeds of one process.
SIM_NODES = ["1", "2..9", "10..50"]  # Of its clusters, in turn.
SIM_JOBS_BATCH = 1000
SIM_JOBS_NODES = ["1", "2..4", "2..4"]
SIM_JOBS_EVENTS = 3000  # Of one run, about.
# Programs of tests/python whose last lines are the figures: arguments, and which lines.
PYTHON_ROWS = {
    "churn": (["--minutes=10"], r"^(\d+ rounds .*)$"),
    "job_kills": (["--kills=200"], r"^(\d+ kills .*)$"),
    "tune_kills": (["--kills=50"], r"^(\d+ kills, .*)$"),
    "data_kills": (["--seeds=50"], r"^(\d+ runs exact: .*)$"),
    "interrupts": (["--tries=210"], r"^(\d+ tries, .*|to the prompt: .*)$"),
}
# What a row gives: the cells behind its name and day (seed, time, result, figures), and whether it
# passed.
Outcome = tuple[list[str], bool]


def execute(command: list[str], limit_s: float, **variables: str) -> tuple[str, bool, float]:
    """What it printed, whether it ended with status 0, and how many seconds it took."""
    begin = time.monotonic()
    done = subprocess.run(
        command,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=limit_s,
        check=False,
    )
    return done.stdout, done.returncode == 0, time.monotonic() - begin


def outcome(seed: object, seconds: float, passed: bool, figures: list[str]) -> Outcome:
    result = "passed" if passed else "FAILED"
    return [str(seed), f"{seconds:.0f} s", result, "; ".join(figures)], passed


def run(program: str, row: str) -> Outcome:
    command = (
        [program, f"[row{row}]"]
        if row in PROGRAM_ROWS
        else [sys.executable, str(FOLDER / "node_rows.py"), row]
    )
    output, passed, seconds = execute(command, 3600, FAULT_LONG="1")
    print(output, flush=True)
    seed = re.search(r"FAULT_SEED=(\d+)", output)
    figures = re.findall(rf"^row {row}: (.*)$", output, flags=re.M)
    cells, passed = outcome(seed.group(1) if seed else "", seconds, passed, figures)
    if "SKIPPED:" in output:
        cells[2] = "skipped"
    return cells, passed


def run_seeds(command: list[str], seed: int, nodes: str) -> tuple[str, list[str]]:
    """What the simulator printed, and the seeds that failed."""
    output, passed, _ = execute([*command, "--seed", str(seed), "--nodes", nodes], 3600)
    if passed:
        return output, []
    print(output, flush=True)
    failed = re.findall(r"^seed (\d+ .*) fails", output, flags=re.M)
    return output, failed or [f"{seed} and on, --nodes {nodes}"]


def said_of(failed: list[str]) -> str:
    return f"; failed seeds: {', '.join(failed)}" if failed else ", no seed failed"


def simulate(program: str) -> Outcome:
    """The row `sim`: seeds from a random one on, until the time is over."""
    first = seed = random.randrange(1, 1 << 40)
    begin = time.monotonic()
    counts = {"runs": 0, "events": 0, "calls": 0}
    failed = []
    for nodes in itertools.cycle(SIM_NODES):
        if time.monotonic() - begin >= float(os.environ.get("SIM_SECONDS", "300")):
            break
        output, more = run_seeds([program, "--seeds", str(SIM_BATCH)], seed, nodes)
        failed += more
        for name in counts:
            counts[name] += sum(int(n) for n in re.findall(rf"(\d+) {name}", output))
        seed += SIM_BATCH
    figures = ", ".join(f"{count} {name}" for name, count in counts.items()) + said_of(failed)
    print(f"row sim: {figures}", flush=True)
    return outcome(first, time.monotonic() - begin, not failed, [figures])


def simulate_jobs(program: str) -> Outcome:
    """The row `sim_jobs`."""
    first = seed = random.randrange(1, 1 << 40)
    begin = time.monotonic()
    until = first + int(os.environ.get("SIM_JOBS", "100000"))
    counts = dict.fromkeys(("GCS crashes", "node crashes", "SUCCEEDED", "FAILED", "STOPPED"), 0)
    started, failed = 0, []
    for nodes in itertools.cycle(SIM_JOBS_NODES):
        if seed >= until:
            break
        batch = min(SIM_JOBS_BATCH, until - seed)
        command = [program, "--jobs", "--seeds", str(batch), "--events", str(SIM_JOBS_EVENTS)]
        output, more = run_seeds(command, seed, nodes)
        failed += more
        for name in counts:
            counts[name] += sum(int(n) for n in re.findall(rf"{name} (\d+)", output))
        started += sum(int(n) for n in re.findall(r"that were started: (\d+)", output))
        seed += batch
    figures = f"{seed - first} runs, {started} commands, "
    figures += ", ".join(f"{count} {name}" for name, count in counts.items()) + said_of(failed)
    print(f"row sim_jobs: {figures}", flush=True)
    return outcome(first, time.monotonic() - begin, not failed, [figures])


def every_method(program: str) -> Outcome:
    """Row 22."""
    first = int(os.environ.get("FAULT_SEED") or random.randrange(1, 1 << 32))
    count = os.environ.get("FAULT_COUNT", "100")
    command = [program, "--methods", "--seed", str(first), "--seeds", count]
    output, passed, seconds = execute(command, 3600)
    print(output, flush=True)
    figures = re.findall(r"^(\d+ runs, .*|\d+ of \d+ methods .*)$", output, flags=re.M)
    return outcome(first, seconds, passed, figures)


def scale(program: str) -> Outcome:
    """The row `scale`, whose table is a page of its own."""
    output, passed, seconds = execute(
        [program, "--drivers", "100", "--scale", os.environ.get("SIM_SCALE", "1000")], 7200
    )
    print(output, flush=True)
    rows = []
    for line in re.findall(r"^ *(\d+(?: +[\d.]+){7} \|(?: +[\d.]+){3})$", output, flags=re.M):
        nodes, tasks, *cells = line.replace("|", " ").split()
        rows.append([f"{int(nodes):,}", f"{int(tasks):,}", *cells])
    evidence.record(evidence.FOLDER / "simulation.md", "scale", rows)
    figures = re.findall(r"^(growth of .*|\d+ clusters of .*)$", output, flags=re.M)
    return outcome("", seconds, passed, figures)


def looks(program: str) -> Outcome:
    """The row `looks`, on the same page."""
    nodes = os.environ.get("SIM_SCALE", "1000")
    output, passed, seconds = execute([program, "--looks", nodes], 7200)
    print(output, flush=True)
    rows = []
    for line in re.findall(r"^(\w.*\S {2,}\d+\.\d+ +\d+ +\d+ +\d+)$", output, flags=re.M):
        what, took, size, count, late = re.split(r" {2,}", line)
        if [what] != [row[0] for row in rows[-1:]]:  # Of digests each second the first one.
            rows.append([what, took, f"{int(size):,}", f"{int(count):,}", late])
    evidence.record(evidence.FOLDER / "simulation.md", "looks", rows)
    figures = re.findall(r"^(\d+ nodes, .*|.*within.*)$", output, flags=re.M)
    return outcome("", seconds, passed, figures)


def monkey() -> Outcome:
    seed, begin = random.randrange(1, 1 << 32), time.monotonic()
    seconds = float(os.environ.get("MONKEY_SECONDS", "3600"))
    figures, all_passed = [], True
    for nodes, part in ((1, 1 / 3), (3, 2 / 3)):
        command = [
            sys.executable,
            str(ROOT / "tests" / "python" / "monkey.py"),
            f"--nodes={nodes}",
            f"--seconds={seconds * part:.0f}",
            f"--seed={seed}",
            "--keep-going",
        ]
        output, passed, _ = execute(command, 2 * seconds + 1200)
        print(output, flush=True)
        all_passed = all_passed and passed
        figures += re.findall(r"^monkey: (\d+ programs .*|memory of .*)$", output, flags=re.M)
    return outcome(seed, time.monotonic() - begin, all_passed, figures)


def python_program(row: str) -> Outcome:
    arguments, lines = PYTHON_ROWS[row]
    program = str(ROOT / "tests" / "python" / f"{row}.py")
    output, passed, seconds = execute([sys.executable, program, *arguments], 7200)
    print(output, flush=True)
    seed = re.search(r"seed (\d+)", output)
    figures = re.findall(lines, output, flags=re.M)
    return outcome(seed.group(1) if seed else "", seconds, passed, figures)


def run_row(row: str, program: str, simulator: str) -> Outcome:
    in_simulator = {
        "22": every_method,
        "sim": simulate,
        "sim_jobs": simulate_jobs,
        "scale": scale,
        "looks": looks,
    }
    if row in in_simulator:
        return in_simulator[row](simulator)
    if row == "monkey":
        return monkey()
    return python_program(row) if row in PYTHON_ROWS else run(program, row)


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
        cells, passed = run_row(row, program, simulator)
        if not passed:
            failed.append(row)
        evidence.record(evidence.FOLDER / "soak.md", "soak", [[row, *cells]])
    print(
        "soak: "
        f"{'all rows passed' if not failed else 'FAILED rows: ' + ' '.join(failed)}; "
        "see docs/evidence/soak.md"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
