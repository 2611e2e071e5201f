# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Runs the long forms of the fault rows and writes their figures into docs/soak.md.

Usage: soak.py FAULT_TEST SHEAF_PROGRAM [ROW...]

Rows that are not named keep the line of their last run. FAULT_SEED and FAULT_COUNT are passed on.
"""

import datetime
import os
import pathlib
import re
import subprocess
import sys
import time

ROWS = ["1", "2", "3", "4", "5", "7", "11", "14", "26", "27", "28", "35", "37"]
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "soak.md"
BEGIN, END = "<!-- rows -->\n", "<!-- end of rows -->\n"


def run(program: str, row: str) -> tuple[list[str], bool]:
    """The table lines of one row."""
    begin = time.monotonic()
    done = subprocess.run([program, f"[row{row}]"], env=os.environ | {"FAULT_LONG": "1"}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=3600, check=False)
    seconds = time.monotonic() - begin
    print(done.stdout, flush=True)
    seed = re.search(r"FAULT_SEED=(\d+)", done.stdout)
    figures = re.findall(rf"^row {row}: (.*)$", done.stdout, flags=re.M)
    passed = done.returncode == 0
    result = "skipped" if "SKIPPED:" in done.stdout else "passed" if passed else "FAILED"
    day = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    return [f"| {row} | {day} | {seed.group(1) if seed else ''} | {seconds:.0f} s | {result} | {'; '.join(figures)} |\n"], passed


def main() -> int:
    program, sheaf, rows = sys.argv[1], sys.argv[2], sys.argv[3:] or ROWS
    for row in rows:
        if row not in ROWS:
            sys.exit(f"soak: there is no row '{row}'; want some of {' '.join(ROWS)}")
    os.environ["SHEAF_EXECUTABLE"] = os.path.abspath(sheaf)
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    table, tail = rest.split(END)
    lines = {line.split("|")[1].strip(): [line] for line in table.splitlines(keepends=True) if re.match(r"\| \d", line)}
    header = [line for line in table.splitlines(keepends=True) if not re.match(r"\| \d", line)]
    failed = []
    for row in rows:
        print(f"== row {row}", flush=True)
        lines[row], passed = run(program, row)
        if not passed:
            failed.append(row)
        body = "".join("".join(lines[row]) for row in ROWS if row in lines)
        PAGE.write_text(head + BEGIN + "".join(header) + body + END + tail)
    print(f"soak: {'all rows passed' if not failed else 'FAILED rows: ' + ' '.join(failed)}; see docs/soak.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
