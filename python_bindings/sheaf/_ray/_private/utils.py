# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What libraries look up in `ray._private.utils`."""

from __future__ import annotations

import os


def get_num_cpus(override_docker_cpu_warning: bool = False, truncate: bool = True) -> int:
    """Returns how many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def get_system_memory(
    memory_limit_filename: str = "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    memory_limit_filename_v2: str = "/sys/fs/cgroup/memory.max",
) -> int:
    """Returns the bytes of memory of this machine, or of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in (memory_limit_filename, memory_limit_filename_v2):
        try:
            with open(name) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):  # It is not there, or says "max".
            pass
    return total


def get_used_memory() -> int:
    """Returns the bytes of memory that are in use on this machine."""
    with open("/proc/meminfo") as file:
        amounts = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file}
    return amounts["MemTotal"] - amounts["MemAvailable"]


def binary_to_hex(identifier: bytes) -> str:
    """Returns an id's bytes as digits."""
    return identifier.hex()


def hex_to_binary(hex_identifier: str) -> bytes:
    """Returns an id's digits as bytes."""
    return bytes.fromhex(hex_identifier)
