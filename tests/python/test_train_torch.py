# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""torch.distributed over Sheaf, and sheaf.train.torch. Runs with whatever Python here has torch:
this one, or the system's."""

import functools
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

WAIT_S = 240  # Importing torch alone takes long on a busy machine.


@functools.cache
def python_with_torch():
    """Skips the test where there is none."""
    ask = (
        "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, "
        "('torch', 'numpy', 'cloudpickle'))))"
    )
    named = os.environ.get("SHEAF_TORCH_PYTHON")  # Of ./do peer torch.
    for program in [named] if named else (sys.executable, "/usr/bin/python3"):
        if os.path.exists(program) and subprocess.run([program, "-c", ask]).returncode == 0:
            return program
    pytest.skip(
        "torch is not installed: apt-get install python3-torch "
        "python3-cloudpickle, or pip install torch"
    )


def run(tmp_path, program, *command):
    python = python_with_torch()
    path = (
        tmp_path / "path"
    )  # Another Python finds what sheaf._core needs here, and nothing else of this one.
    path.mkdir()
    backend = importlib.util.find_spec("nanobind_backend")
    if backend is not None:
        (path / "nanobind_backend").symlink_to(pathlib.Path(backend.origin).parent)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(path)]),
    }
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [python, *command, tmp_path / "program.py"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


OPERATIONS = """
import os, sys, torch, torch.distributed as dist
import sheaf.torch
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("sheaf")
r, n = dist.get_rank(), dist.get_world_size()
for dt in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.int16, torch.int8):
    x = torch.arange(7).to(dt) + r
    dist.all_reduce(x); assert torch.equal(x, (torch.arange(7) * n + n * (n - 1) // 2).to(dt)), (dt, x)
x = torch.full((3, 2), r); dist.broadcast(x, 1); assert (x == 1).all()
for big in (torch.full((100_000,), r + 1.0), torch.full((400, 500), r + 1.0).t(), torch.full((200_000,), r + 1.0).bfloat16(), torch.full((99_999,), r + 1)):
    dist.all_reduce(big); assert (big == n * (n + 1) // 2).all(), big
b = torch.tensor([r == 1, False]); dist.all_reduce(b, dist.ReduceOp.MAX); assert b.tolist() == [True, False], b
out = [torch.zeros(2, 3) for _ in range(n)]; dist.all_gather(out, torch.full((2, 3), float(r))); assert [o[1, 2].item() for o in out] == list(range(n))
o = [None] * n; dist.all_gather_object(o, {"rank": r}); assert o == [{"rank": i} for i in range(n)]
t = torch.full((4,), float(r)).t(); dist.reduce(t, 0); assert r or t[0] == n * (n - 1) / 2
res = torch.zeros(2); dist.reduce_scatter(res, [torch.full((2,), float(i + r)) for i in range(n)]); assert res[0] == sum(range(n)) + n * r
if r == 0: dist.send(torch.tensor([5.0]), 1)
if r == 1: y = torch.zeros(1); dist.recv(y, 0); assert y == 5
p = torch.zeros(1); q = [dist.isend(torch.tensor([float(r)]), (r + 1) % n), dist.irecv(p, (r - 1) % n)]; [w.wait() for w in q]; assert p == (r - 1) % n
g = [torch.zeros(1) for _ in range(n)] if r == 0 else None; dist.gather(torch.tensor([float(r)]), g); assert r or [v.item() for v in g] == list(range(n))
s = torch.zeros(1); dist.scatter(s, [torch.tensor([10.0 + i]) for i in range(n)] if r == 0 else None); assert s == 10 + r
ai = torch.arange(n * 2.0) + 100 * r; ao = torch.zeros(n * 2); dist.all_to_all_single(ao, ai); assert ao[2 * ((r + 1) % n)] == 100 * ((r + 1) % n) + 2 * r
nc = torch.zeros(3, 4).t(); nc += r; dist.all_reduce(nc); assert (nc == n * (n - 1) / 2).all()
l = [{"a": 1}] if r == 0 else [None]; dist.broadcast_object_list(l, 0); assert l == [{"a": 1}]
sub = dist.new_group([0, 1])
if r < 2:
    z = torch.ones(1); dist.all_reduce(z, group=sub); assert z == 2
dist.barrier()
torch.manual_seed(0)
m = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 1))
d = DDP(m, bucket_cap_mb=0.001); opt = torch.optim.SGD(d.parameters(), 0.1)
ds = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
sa = torch.utils.data.DistributedSampler(ds);
for e in range(2):
    sa.set_epoch(e)
    for a, t in torch.utils.data.DataLoader(ds, 8, sampler=sa):
        opt.zero_grad(); torch.nn.functional.mse_loss(d(a), t).backward(); opt.step()
flat = torch.cat([p.detach().view(-1) for p in m.parameters()]); al = [torch.empty_like(flat) for _ in range(n)]; dist.all_gather(al, flat)
assert all(torch.equal(al[0], v) for v in al)

def in_shared_memory(tensor):
    for line in open("/proc/self/maps"):
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= tensor.data_ptr() < end:
            return "memfd:" in line

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.seldom = torch.nn.Linear(8, 64), torch.nn.Linear(64, 32), torch.nn.Linear(64, 32)
    def forward(self, x, seldom):
        x = self.first(x).relu()
        return (self.seldom(x) if seldom else self.second(x)).sum()

for unused in (False, True):
    plain, views = Net(), Net()
    if not unused:
        del plain.seldom, views.seldom
    views.load_state_dict(plain.state_dict())
    plain = DDP(plain, find_unused_parameters=unused, bucket_cap_mb=0.005, gradient_as_bucket_view=True)
    views = DDP(views, find_unused_parameters=unused, bucket_cap_mb=0.005, gradient_as_bucket_view=True)
    sheaf.torch.share_gradients(views)
    for step in range(6):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + r))
        for model in (plain, views):
            model.zero_grad(set_to_none=step % 2 == 1)
            with model.no_sync():
                model(2 * x, unused and step == 3).backward()
            model(x, unused and step in (0, 3)).backward()
        for a, b in zip(plain.parameters(), views.parameters()):
            assert (a.grad is None) == (b.grad is None), (unused, step)
            assert a.grad is None or torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-5), (unused, step)
    if not unused:
        assert all(in_shared_memory(parameter.grad) for parameter in views.parameters())
try:
    sheaf.torch.share_gradients(torch.nn.Linear(1, 1)); assert False
except TypeError as error:
    assert "want a DistributedDataParallel" in str(error)
dist.destroy_process_group(); print("ok", flush=True)
"""


def test_every_operation_and_ddp_run_over_the_backend(tmp_path):
    said = run(tmp_path, OPERATIONS, "-m", "sheaf.launch", "--nproc", "2")
    assert sorted(said.splitlines()) == ["[0] ok", "[1] ok"]


TRAINER = """
import os, signal, sys, tempfile, torch, sheaf
from sheaf import train
from sheaf.cluster_utils import Cluster
from sheaf.train.torch import TorchTrainer, prepare_model, prepare_data_loader

def loop(config):
    torch.manual_seed(0)
    context = train.get_context()
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    x = torch.randn(64, 4)
    loader = prepare_data_loader(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), 8, shuffle=True))
    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(f"{folder}/state.pt")
        model.module.load_state_dict(state["model"])
        first = state["epoch"]
    for epoch in range(first, config["epochs"]):
        if (epoch, context.epoch, context.get_world_rank()) == (2, 0, 1) and not config["nodes"]:
            os.kill(os.getpid(), signal.SIGKILL)
        loader.sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(images), labels)
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"model": model.module.state_dict(), "epoch": epoch + 1}, f"{folder}/state.pt")
            checkpoint = train.Checkpoint.from_directory(folder) if context.get_world_rank() == 0 else None
            about = {"batches": len(loader), "backend": torch.distributed.get_backend(), "model": type(model).__name__}
            train.report({"loss": loss.detach(), "epoch": epoch + 1, **about}, checkpoint)

class ReplaceNode(train.UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        if cluster.worker_nodes and metrics[0]["epoch"] == 2:  # No rank comes further than to its next report meanwhile.
            cluster.remove_node(cluster.worker_nodes[0], allow_graceful=False)
            cluster.add_node(wait=False, num_cpus=1)
            self.after_report = lambda *about: None

def alone(epochs):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    x = torch.randn(64, 4)
    for epoch in range(epochs):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(epoch))  # As DistributedSampler has it.
        for batch in order.split(16):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x[batch]), x[batch].sum(1, keepdim=True)).backward()
            optimizer.step()
    return model.state_dict()

if __name__ == "__main__":
    nodes = sys.argv[1:] == ["nodes"]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1 if nodes else 2})
    for _ in range(nodes):
        cluster.add_node(num_cpus=1)
    with sheaf.init(address=cluster.address, log_to_driver=False), tempfile.TemporaryDirectory() as out:
        cluster.wait_for_nodes()
        result = TorchTrainer(
            loop, train_loop_config={"epochs": 4, "nodes": nodes}, scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(storage_path=out, name="run", failure_config=train.FailureConfig(3), callbacks=[ReplaceNode()], progress=False),
        ).fit()
        with result.checkpoint.as_directory() as folder:
            weights = torch.load(f"{folder}/state.pt")["model"]
    cluster.shutdown()
    print([row["epoch"] for row in result.metrics_history])
    print(result.metrics["batches"], result.metrics["backend"], result.metrics["model"])
    print(all(torch.allclose(weights[name], value, rtol=0, atol=1e-6) for name, value in alone(4).items()))
    print(*[event.text for event in result.events if "begin from" in event.text], sep="\\n")
"""


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_torch_trainer_loses_a_worker_or_a_node_and_comes_to_the_weights_of_one_process(
    tmp_path, nodes
):
    said = run(
        tmp_path, f"import sys; sys.argv[1:] = {['nodes'] * (nodes > 1)}\n" + TRAINER
    ).splitlines()
    assert said[:3] == ["[1, 2, 3, 4]", "4 sheaf DistributedDataParallel", "True"], said
    assert (
        said[3]
        == f"2 workers on {nodes} node{'s' * (nodes > 1)} (0 kept, 2 new) begin from the start"
    )
    assert re.search(r"begin from checkpoint_00000[12]", said[-1]), (
        said
    )  # The last report may die with its rank.


def test_the_example_recognises_digits(tmp_path):
    program = pathlib.Path(__file__).parents[2] / "examples" / "python" / "train_torch.py"
    said = run(
        tmp_path,
        "import runpy, sys; sys.argv[1:] = ['--epochs', '5']; "
        f"runpy.run_path({str(program)!r}, run_name='__main__')",
    )
    assert float(re.search(r"recognised: (0\.\d+)", said).group(1)) > 0.9
    clipped = re.search(
        r"gradients of 2 batches a step, torch\.(?:bfloat16|float16), clipped in (\d+) steps", said
    )
    assert clipped and int(clipped.group(1)) > 0, said


def test_without_torch_the_package_says_what_is_missing(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import sheaf.train.torch
for use in (lambda: sheaf.train.torch.TorchTrainer(print), lambda: __import__("sheaf.torch")):
    try:
        use()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.stdout.count("needs PyTorch: pip install torch") == 2, done.stdout + done.stderr


WAYS = ["ddp", "ddp_compiled", "fsdp2", "tensor_parallel", "pipeline_1f1b", "zero_redundancy"]
WAYS += ["checkpoint", "object_collectives"]


def test_the_ways_of_todays_torch_give_the_numbers_of_gloo(tmp_path):
    python = python_with_torch()
    has = "import torch, torch.distributed.pipelining, torch.distributed.fsdp as f; f.fully_shard"
    if subprocess.run([python, "-c", has], capture_output=True).returncode != 0:
        pytest.skip("torch here is older than 2.6: ./do peer torch installs a newer one")
    program = pathlib.Path(__file__).with_name("torch_parallel.py").read_text()
    said = run(tmp_path, program, "-m", "sheaf.launch", "--nproc", "2")
    for way in WAYS:
        lacks = re.search(rf"{way} is not in torch 2\.6", said) and way in ("fsdp2", "checkpoint")
        assert lacks or f"{way} ok" in said, said
