# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What `./do bench python --profile` counts (benchmarks/call_costs.py)."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import time

import pytest
from conftest import WAIT_S, wait_until

_SPEC = importlib.util.spec_from_file_location(
    "call_costs", pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "call_costs.py"
)
call_costs = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(call_costs)


def test_counts_of_perf_are_read_and_what_it_could_not_count_is_left_out():
    text = (
        "1234,,raw_syscalls:sys_enter,5600,100.00,,\n<not supported>,,instructions:u,0,0.00,,\n\n"
    )
    assert call_costs.parse_counts(text) == {"raw_syscalls:sys_enter": 1234}


def test_descendants_are_found_and_their_time_is_counted():
    text = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    parent = subprocess.Popen([sys.executable, "-c", text], start_new_session=True)
    try:
        wait_until(lambda: len(call_costs.processes_below(parent.pid)) == 2)
        child = call_costs.processes_below(parent.pid) - {parent.pid}
        wait_until(lambda: call_costs.scheduled(child)[0] > 0.05)
    finally:
        os.killpg(parent.pid, 9)
        parent.wait(WAIT_S)
    assert call_costs.scheduled({parent.pid}) == (0.0, 0)


def test_a_run_is_measured_per_unit():
    with call_costs.Meter() as meter:
        costs = meter.measure(lambda: time.sleep(0.001), 1, 0.2)
    row = costs["driver"]
    assert list(row) == call_costs.COLUMNS and 0.9 < row["switches"] < 3 and row["CPU, us"] < 1000
    if row["system calls"] is None:
        pytest.skip("perf may not count system calls here")
    assert 0.9 < row["system calls"] < 3
