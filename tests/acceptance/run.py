# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Run every acceptance program in a process of its own; exit status 1 when one fails."""

import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
LIMIT_S = 180
names = sys.argv[1:] or sorted(
    p.stem for p in HERE.glob("*.py") if p.stem not in {"run", "runtime"}
)
failed = 0
for name in names:
    begin = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, HERE / f"{name}.py"], capture_output=True, text=True, timeout=LIMIT_S
        )
        ok, tail = (
            done.returncode == 0,
            (done.stdout if done.returncode == 0 else done.stdout + done.stderr),
        )
    except subprocess.TimeoutExpired:
        ok, tail = False, f"no end in {LIMIT_S} s"
    lines = [line for line in tail.strip().splitlines() if line][-1 if ok else -25 :]
    print(
        f"{'ok  ' if ok else 'FAIL'} {name:22} {time.monotonic() - begin:6.1f} s  "
        + "\n     ".join(lines),
        flush=True,
    )
    failed += not ok
print(f"{len(names) - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
