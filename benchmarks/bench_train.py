# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A step of PyTorch's DistributedDataParallel on the CPU: a model of 10 million parameters, two
processes of one thread each on this machine, over torch's Gloo, over the backend "sheaf", and over
it with gradients in shared memory (sheaf.torch.share_gradients, which
sheaf.train.torch.prepare_model calls).

    ./do bench train [--json FILE] [--rounds N]

The three take turns in the same two processes. Communication is what a step takes longer than one
without (no_sync) beside it: the copies that DDP makes for it included. All three have
gradient_as_bucket_view=True, and gradients are set to zero where they are.
"""

import argparse
import contextlib
import copy
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = (1024, 2048, 2048, 1536, 512)  # 10,229,760 parameters.
BATCH, STEPS, WARM_UP = 4, 3, 4


def steps(model, images, synchronized, count):
    """Seconds for one."""
    begun = time.perf_counter()
    for _ in range(count):
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        with contextlib.nullcontext() if synchronized else model.no_sync():
            model(images).sum().backward()
    return (time.perf_counter() - begun) / count


def measure(rounds):
    """One rank: {name: [(seconds of a step, seconds of one without communication)]}, by round."""
    import torch
    import torch.distributed as distributed
    from sheaf.torch import share_gradients

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    sheaf_group = distributed.new_group(backend="sheaf")
    torch.manual_seed(distributed.get_rank())
    images = torch.randn(BATCH, SIZES[0])
    layers = [
        layer
        for pair in zip(SIZES, SIZES[1:])
        for layer in (torch.nn.Linear(*pair), torch.nn.ReLU())
    ]
    first = torch.nn.Sequential(*layers)
    models = {}
    for name, group in (
        ("torch, gloo", None),
        ("sheaf", sheaf_group),
        ("sheaf, shared gradients", sheaf_group),
    ):
        model = torch.nn.parallel.DistributedDataParallel(
            copy.deepcopy(first), process_group=group, gradient_as_bucket_view=True
        )
        if name.endswith("shared gradients"):
            share_gradients(model)
        steps(model, images, True, WARM_UP)
        models[name] = model
    gradients = [
        torch.cat([parameter.grad.view(-1) for parameter in model.parameters()])
        for model in models.values()
    ]
    if not all(torch.allclose(gradients[0], other, rtol=1e-3, atol=1e-5) for other in gradients):
        raise SystemExit("bench_train: the gradients differ")
    times = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            pair = []
            for synchronized in (True, False):
                distributed.barrier()
                pair.append(steps(model, images, synchronized, STEPS))
            times[name].append(tuple(pair))
    return {
        "torch": torch.__version__,
        "parameters": sum(parameter.numel() for parameter in first.parameters()),
        "times": times,
    }


def python_with_torch():
    """This one, or the system's, which has Debian's python3-torch."""
    ask = (
        "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, "
        "('torch', 'numpy', 'cloudpickle'))))"
    )
    for program in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(program) and subprocess.run([program, "-c", ask]).returncode == 0:
            return program
    raise SystemExit(
        "torch is not installed: apt-get install python3-torch "
        "python3-cloudpickle, or pip install torch"
    )


def run_ranks(rounds):
    """What rank 0 measured."""
    with tempfile.TemporaryDirectory() as folder:
        backend = importlib.util.find_spec(
            "nanobind_backend"
        )  # Of this Python, also for the other.
        if backend is not None and backend.origin:
            (pathlib.Path(folder) / "nanobind_backend").symlink_to(
                pathlib.Path(backend.origin).parent
            )
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), folder]),
        }
        figures = pathlib.Path(folder) / "figures"
        command = [
            python_with_torch(),
            "-m",
            "sheaf.launch",
            "--nproc",
            "2",
            __file__,
            "--rounds",
            str(rounds),
            "--rank-figures",
            figures,
        ]
        subprocess.run(command, check=True, env=environment)
        return json.loads(figures.read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rank-figures", help=argparse.SUPPRESS)  # A rank of this program.
    given = parser.parse_args()
    if given.rank_figures:
        measured = measure(given.rounds)
        if os.environ["RANK"] == "0":
            pathlib.Path(given.rank_figures).write_text(json.dumps(measured))
        return
    measured = run_ranks(given.rounds)
    print(
        f"\nDistributedDataParallel, {measured['parameters']:,} parameters, 2 "
        f"ranks, torch {measured['torch']}, {given.rounds} rounds: ms"
    )
    print(
        f"{'':26}{'median: step':>14}{'alone':>10}{'communication':>15}{'best: step':>14}"
        f"{'alone':>10}{'communication':>15}{'Gloo by it':>12}"
    )
    rows, of_gloo = [], 0.0
    for name, pairs in measured["times"].items():
        step, alone = (1e3 * statistics.median(pair[index] for pair in pairs) for index in (0, 1))
        spent = 1e3 * statistics.median(whole - without for whole, without in pairs)
        best_step, best_alone = (1e3 * min(pair[index] for pair in pairs) for index in (0, 1))
        best = best_step - best_alone  # On a busy machine, where the median is a matter of luck.
        of_gloo = of_gloo or best
        ratio = f"{of_gloo / best:12.1f}" if best > 0 else f"{'no cost':>12}"
        print(
            f"{name:26}{step:14.1f}{alone:10.1f}{spent:15.2f}{best_step:14.1f}{best_alone:10.1f}{best:15.2f}{ratio}"
        )
        rows.append(
            {
                "name": f"DDP communication by the best rounds, 10 M parameters, 2 ranks, {name}",
                "unit": "ms",
                "value": best,
            }
        )
        for what, value in (
            ("step", step),
            ("step without communication", alone),
            ("communication", spent),
        ):
            rows.append(
                {
                    "name": f"DDP {what}, 10 M parameters, 2 ranks, {name}",
                    "unit": "ms",
                    "value": value,
                }
            )
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
