# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""One rank of two that train small models in the ways of today's torch, over Sheaf and over Gloo:
the numbers are the same up to rounding. Arguments: the ways, by name; none: all. See test_train_torch.py.

A pipeline is compared with the whole model in one process: over Gloo torch 2.6's hangs, since it
drops the sends that it does not wait for."""

import inspect
import sys
import tempfile

import sheaf.torch  # noqa: F401
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

WAYS = {}


def way(function):
    WAYS[function.__name__] = function
    return function


def net(width=32):
    torch.manual_seed(3)
    layers = [torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 8)]
    return torch.nn.Sequential(*layers)


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(16, 8, generator=generator), torch.randn(16, 8, generator=generator)


def steps(model, optimizer, group, count=4):
    """Losses of `count` steps."""
    losses = []
    for step in range(count):
        data, target = batch(step, dist.get_rank(group))
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def mesh_of(group, names=("ranks",)):
    return DeviceMesh.from_group(group, "cpu", mesh_dim_names=names)


@way
def ddp(group):
    model = DistributedDataParallel(net(), process_group=group)
    return steps(model, torch.optim.SGD(model.parameters(), 0.1), group)


@way
def ddp_compiled(group):
    model = DistributedDataParallel(net(), process_group=group)
    compiled = torch.compile(model, backend="aot_eager")
    return steps(compiled, torch.optim.SGD(model.parameters(), 0.1), group)


@way
def fsdp2(group):
    from torch.distributed.fsdp import fully_shard

    model, mesh = net(), mesh_of(group)
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    losses = steps(model, torch.optim.AdamW(model.parameters(), 0.01), group)
    whole = [parameter.full_tensor().detach().reshape(-1) for parameter in model.parameters()]
    return torch.cat([losses, *whole])


@way
def tensor_parallel(group):
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(net(), mesh_of(group), plan)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for step in range(4):
        data, target = batch(step, 0)  # The same for all ranks.
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@way
def pipeline_1f1b(group):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank = dist.get_rank(group)
    whole = net()
    part = whole[:2] if rank == 0 else whole[2:]
    stage = PipelineStage(part, rank, 2, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, 4, loss_fn=torch.nn.functional.mse_loss)
    data, target = batch(0, 0)
    losses = []
    if rank == 0:
        schedule.step(data)
    else:
        schedule.step(target=target, losses=losses)
    return losses_and_gradients(losses, part)


def losses_and_gradients(losses, model):
    gradients = [parameter.grad.reshape(-1) for parameter in model.parameters()]
    return torch.cat([torch.stack(losses).detach() if losses else torch.zeros(1), *gradients])


def pipeline_in_one_process(group):
    from torch.distributed.pipelining import Schedule1F1B

    rank = dist.get_rank(group)
    whole = net()
    losses = [
        torch.nn.functional.mse_loss(whole(data), target)
        for data, target in zip(*(tensor.chunk(4) for tensor in batch(0, 0)), strict=True)
    ]
    scaled = "scale_grads" in inspect.signature(Schedule1F1B).parameters  # Not in torch 2.6.
    (sum(losses) / (4 if scaled else 1)).backward()
    part = whole[:2] if rank == 0 else whole[2:]
    return losses_and_gradients(losses if rank == 1 else [], part)


@way
def zero_redundancy(group):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(net(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.Adam, process_group=group, lr=0.01
    )
    losses = steps(model, optimizer, group)
    return torch.cat([losses, *(p.detach().reshape(-1) for p in model.parameters())])


@way
def checkpoint(group):
    from torch.distributed.fsdp import fully_shard

    mesh = mesh_of(group)
    model = fully_shard(net(), mesh=mesh)
    steps(model, torch.optim.SGD(model.parameters(), 0.1), group, 2)
    place = [tempfile.mkdtemp() if dist.get_rank(group) == 0 else None]
    dist.broadcast_object_list(place, 0, group)
    dcp.save({"model": model.state_dict()}, checkpoint_id=place[0], process_group=group)
    other = net()
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    fully_shard(other, mesh=mesh)
    state = {"model": other.state_dict()}
    dcp.load(state, checkpoint_id=place[0], process_group=group)
    other.load_state_dict(state["model"])
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a.full_tensor(), b.full_tensor())
    return torch.cat([p.full_tensor().detach().reshape(-1) for p in other.parameters()])


@way
def object_collectives(group):
    everything = [None] * dist.get_world_size(group)
    dist.all_gather_object(everything, {"rank": dist.get_rank(group)}, group=group)
    assert everything == [{"rank": 0}, {"rank": 1}], everything
    return torch.zeros(1)


def main():
    dist.init_process_group("sheaf")
    gloo = dist.new_group(backend="gloo")
    # torch 2.6 has FSDP2, but not for the CPU: it fails over any backend.
    lacks = () if hasattr(torch.cpu.Stream, "record_event") else ("fsdp2", "checkpoint")
    for name in sys.argv[1:] or WAYS:
        if name in lacks:
            if dist.get_rank() == 0:
                print(name, "is not in torch", torch.__version__, flush=True)
            continue
        over_sheaf = WAYS[name](dist.group.WORLD)
        expected = (pipeline_in_one_process if name == "pipeline_1f1b" else WAYS[name])(gloo)
        assert torch.allclose(over_sheaf, expected, rtol=1e-5, atol=1e-6), (
            name,
            over_sheaf,
            expected,
        )
        assert torch.isfinite(over_sheaf).all(), name
        dist.barrier()
        if dist.get_rank() == 0:
            print(name, "ok", flush=True)
    dist.destroy_process_group()


main()
