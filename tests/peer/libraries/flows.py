# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Libraries that run flows, sweeps and simulations."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

from program import main, program, say


@program
def dask_arrays():
    """arrays, bags and delayed calls by ray.util.dask"""
    import dask
    import dask.array
    import dask.bag
    from ray.util.dask import enable_dask_on_ray

    numbers = dask.array.arange(100_000, chunks=10_000)
    words = dask.bag.from_sequence(["one", "two", "three", "four"] * 25, npartitions=5)
    with enable_dask_on_ray():
        say(int((numbers**2).sum().compute()), float((numbers % 7).mean().compute()))
        say(sorted(words.map(len).frequencies().compute()))
        say(dask.compute(dask.delayed(sum)([dask.delayed(pow)(k, 2) for k in range(10)])))


@program(alone=True)
def flower_simulation():
    """3 rounds of federated averages of 4 clients in actors"""
    import numpy as np
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    rounds = []

    class Client(NumPyClient):
        """Moves the weights halfway to its own mean."""

        def __init__(self, mean):
            self.mean = mean

        def fit(self, parameters, config):
            return [parameters[0] + (self.mean - parameters[0]) / 2], 10, {}

        def evaluate(self, parameters, config):
            return float(np.abs(parameters[0] - self.mean).sum()), 10, {}

    class Averages(FedAvg):
        def aggregate_fit(self, server_round, results, failures):
            parameters, metrics = super().aggregate_fit(server_round, results, failures)
            weights = parameters_to_ndarrays(parameters)[0]
            rounds.append((len(results), len(failures), weights.round(6).tolist()))
            return parameters, metrics

    def client(context):
        return Client(float(context.node_config["partition-id"])).to_client()

    def server(context):
        strategy = Averages(initial_parameters=ndarrays_to_parameters([np.zeros(3)]))
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=3))

    run_simulation(
        ServerApp(server_fn=server),
        ClientApp(client_fn=client),
        num_supernodes=4,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": 2, "log_to_driver": False},
        },
    )
    for row in rounds:
        say(row)


SWEEP = """
import os

import hydra

@hydra.main(config_path=None, config_name=None, version_base="1.3")
def run(config):
    with open(os.path.join(os.environ["SWEEP"], str(config.x)), "w") as out:
        out.write(f"{config.x ** 2} in {os.path.basename(os.getcwd())}")

if __name__ == "__main__":
    run()
"""


@program(alone=True)
def hydra_sweep():
    """a sweep of 3 values, each a task with a working directory of its own"""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "sweep.py"
        script.write_text(textwrap.dedent(SWEEP))
        results = pathlib.Path(folder) / "results"
        results.mkdir()
        words = ["--multirun", "hydra/launcher=ray", "+x=1,2,3", "hydra.job.chdir=true"]
        words += ["+hydra.launcher.ray.init.num_cpus=2"]
        done = subprocess.run(
            [sys.executable, script, *words],
            cwd=folder,
            env={**os.environ, "SWEEP": str(results)},
            capture_output=True,
            text=True,
        )
        say(done.returncode)
        if done.returncode:
            print(done.stdout, done.stderr, file=sys.stderr)
        for path in sorted(results.iterdir()):
            say(path.name, path.read_text())


@program
def datatrove_pipeline():
    """4 files are read, filtered and written by actors in placement groups"""
    import json

    from datatrove.executor.ray import RayPipelineExecutor
    from datatrove.pipeline.filters import LambdaFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "in").mkdir()
        for part in range(4):
            rows = [{"text": f"row {part} {k}", "id": f"{part}-{k}"} for k in range(50)]
            text = "\n".join(json.dumps(row) for row in rows)
            (root / "in" / f"{part}.jsonl").write_text(text)
        executor = RayPipelineExecutor(
            pipeline=[
                JsonlReader(str(root / "in")),
                LambdaFilter(lambda document: document.text.endswith("7")),
                JsonlWriter(str(root / "out"), compression=None),
            ],
            tasks=4,
            workers=2,
            mem_per_cpu_gb=0.1,
            logging_dir=str(root / "logs"),
            ray_remote_kwargs={},
        )
        executor.run()
        for path in sorted((root / "out").iterdir()):
            say(path.name, [json.loads(row)["text"] for row in path.read_text().splitlines()])
        say(sorted(path.name for path in (root / "logs" / "completions").iterdir()))


@program(alone=True)
def prefect_flow():
    """a mapped task, one that needs all of them, and one that fails"""
    os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"
    from prefect import flow, task
    from prefect.testing.utilities import prefect_test_harness
    from prefect_ray import RayTaskRunner

    @task
    def squared(number):
        return number**2

    @task
    def total(numbers, more):
        return sum(numbers) + more

    @task
    def fails():
        raise ValueError("by design")

    @flow(task_runner=RayTaskRunner(init_kwargs={"num_cpus": 2, "log_to_driver": False}))
    def numbers():
        squares = squared.map([1, 2, 3, 4])
        failed = fails.submit()
        failed.wait()
        say(total.submit(squares, 5).result(), failed.state.name)

    with prefect_test_harness(server_startup_timeout=200):
        numbers(return_state=True)


if __name__ == "__main__":
    main()
