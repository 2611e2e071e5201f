# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Collective operations of torch.distributed over NCCL, for bench_nccl. No code of Sheaf.

    torch_nccl.py RANKS LARGEST_BYTES

Ranks are processes, one for each GPU or all on one (NCCL_MULTI_RANK_GPU_ENABLE=1). With
SHEAF_NCCL_LIB torch uses that NCCL. Prints a line for each operation and size: its name, bytes,
and the median of the microseconds that rank 0 sees, as bench_nccl measures them: called, and
waited for.
"""

import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
ROUNDS = 5
ROUND_S = 0.1


def operations(dist, x, y, ranks):
    """Name and call of each, on float32 arrays `x` and `y` of one size, the larger one's."""
    parts_x, parts_y = x.view(ranks, -1), y.view(ranks, -1)
    return {
        "all_reduce": lambda: dist.all_reduce(x),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(parts_y[0], x),
        "all_gather": lambda: dist.all_gather_into_tensor(y, parts_x[0]),
        "broadcast": lambda: dist.broadcast(x, 0),
        "all_to_all": lambda: dist.all_to_all_single(y, x),
    }


def measure(torch, dist, call):
    """Median microseconds of an operation."""

    def once():
        call()
        torch.cuda.current_stream().synchronize()

    expected = torch.tensor(1e9, device="cuda")
    for _ in range(2):
        dist.barrier()
        began = time.perf_counter()
        once()
        expected = expected.clamp(max=time.perf_counter() - began)
    dist.all_reduce(expected, dist.ReduceOp.MAX)
    count = int(min(max(ROUND_S / float(expected), 1), 1000))
    times = []
    for _ in range(ROUNDS):
        dist.barrier()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            once()
        times.append((time.perf_counter() - began) * 1e6 / count)
    return statistics.median(times)


def run_rank(rank, ranks, largest, port):
    """One rank: all operations, all sizes."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks
    )
    kinds = list(operations(dist, torch.empty(ranks), torch.empty(ranks), ranks))
    for kind in kinds:
        for size in SIZES:
            if size > largest:
                break
            x, y = (torch.ones(size // 4, device="cuda") for _ in range(2))
            median = measure(torch, dist, operations(dist, x, y, ranks)[kind])
            if rank == 0:
                print(kind, size, f"{median:.6g}", flush=True)
    dist.destroy_process_group()


def main():
    """Starts the ranks and waits for them."""
    ranks, largest = int(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) > 3:
        run_rank(int(sys.argv[3]), ranks, largest, int(sys.argv[4]))
        return 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = dict(os.environ)
    if library := environment.get("SHEAF_NCCL_LIB"):
        environment["LD_PRELOAD"] = library
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(ranks), str(largest), str(rank), str(port)],
            env=environment,
        )
        for rank in range(ranks)
    ]
    # Ranks wait for each other: the end of one by an error is the end of all.
    deadline = time.monotonic() + 300
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in processes) or time.monotonic() > deadline:
            for process in processes:
                process.kill()
        time.sleep(0.05)
    return max(abs(process.returncode) for process in processes)


if __name__ == "__main__":
    sys.exit(main())
