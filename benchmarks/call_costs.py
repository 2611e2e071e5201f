# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What a call costs beside its time, of the process that makes it and of all below it: CPU,
switches of threads, and, where perf may count them, instructions, system calls and reads of the
clock.

What the kernel says of threads needs no privilege. perf (linux-perf) counts system calls for who
may trace, and reads of the clock by a probe on the C library's clock_gettime, which only root can
place: it is there while a Meter exists. A virtual machine has often no counter of instructions.
"""

import os
import signal
import subprocess
import time

CLOCK = "probe_libc:sheaf_clock"
COUNTED = {
    "instructions": "instructions:u",
    "system calls": "raw_syscalls:sys_enter",
    "clock reads": CLOCK,
}
COLUMNS = ["CPU, us", "switches", *COUNTED]


def processes_below(pid):
    """Itself and its descendants, by the process table."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found


def scheduled(pids):
    """(seconds of CPU, switches by themselves or not) of all threads of these processes."""
    seconds, switches = 0.0, 0
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                    seconds += int(file.read().split()[0]) / 1e9
                with open(f"/proc/{pid}/task/{thread}/status") as file:
                    switches += sum(
                        int(line.split()[1]) for line in file if "ctxt_switches" in line
                    )
        except OSError:  # It has ended.
            continue
    return seconds, switches


def parse_counts(text):
    """{event: count} of what `perf stat -x,` wrote; what it could not count is left out."""
    counts = {}
    for line in text.splitlines():
        value, _, event, *_ = [*line.split(","), "", "", ""]
        if value.isdigit() and event:
            counts[event] = int(value)
    return counts


class _Counter:
    """perf over processes, from its making to `end`."""

    def __init__(self, pids, events):
        command = [
            "perf",
            "stat",
            "-x",
            ",",
            "-e",
            ",".join(events),
            "-p",
            ",".join(map(str, pids)),
        ]
        self._perf = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def end(self):
        self._perf.send_signal(signal.SIGINT)
        return parse_counts(self._perf.communicate()[1])


class Meter:
    """Measures runs; use with `with`."""

    def __enter__(self):
        self._places_probe = _succeeds(
            "perf", "probe", "-q", "-x", _libc(), "sheaf_clock=clock_gettime"
        )
        self._events = [
            event
            for event in COUNTED.values()
            if (event != CLOCK or self._places_probe)
            and _succeeds("perf", "stat", "-e", event, "-p", str(os.getpid()), "--", "true")
        ]
        return self

    def __exit__(self, *_):
        if self._places_probe:
            _succeeds("perf", "probe", "-q", "-d", CLOCK)

    def measure(self, run, amount, seconds):
        """{"driver", "others": {column: per unit, or None: it cannot be counted here}}. The runs
        are made once for the kernel's figures, once for what perf counts, and some for the clock,
        whose probe takes microseconds: waits are longer then, and look at the clock more often."""
        run()
        driver = {os.getpid()}
        sides = {"driver": driver, "others": processes_below(os.getpid()) - driver}
        found = {name: dict.fromkeys(COLUMNS) for name in sides}
        before = {name: scheduled(pids) for name, pids in sides.items()}
        runs, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            run()
            runs += 1
        units = runs * amount
        for name, pids in sides.items():
            cpu, switches = (b - a for a, b in zip(before[name], scheduled(pids), strict=True))
            found[name] |= {"CPU, us": cpu / units * 1e6, "switches": switches / units}
        for events in ([event for event in self._events if event != CLOCK], [CLOCK]):
            if not set(events) <= set(self._events) or not events:
                continue
            counters = {name: _Counter(pids, events) for name, pids in sides.items()}
            time.sleep(0.3)  # perf attaches to each thread; idle ones do little meanwhile.
            few = max(1, runs // 10) if CLOCK in events else runs
            for _ in range(few):
                run()
            for name, counter in counters.items():
                counts = counter.end()
                found[name] |= {
                    column: counts[event] / (few * amount)
                    for column, event in COUNTED.items()
                    if event in counts
                }
        return found


def print_head():
    print(f"{'':38} {'of':>7}" + "".join(f" {column:>14}" for column in COLUMNS))


def print_costs(name, costs):
    """The rows of one run, or of all: one a side."""
    for side, row in costs.items():
        cells = ("-" if row[column] is None else f"{row[column]:,.2f}" for column in COLUMNS)
        print(f"{name:38} {side:>7}" + "".join(f" {cell:>14}" for cell in cells), flush=True)


def _succeeds(*command):
    try:
        return (
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
            == 0
        )
    except FileNotFoundError:
        return False


def _libc():
    with open("/proc/self/maps") as file:
        return next(line.split()[-1] for line in file if "/libc.so" in line or "/libc-" in line)
