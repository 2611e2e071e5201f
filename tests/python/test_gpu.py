# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What needs a GPU: leases of it, tensors of its memory as values, groups over NCCL, training and
tuning on it. Skipped without torch and a GPU. Ranks share a GPU where there is one only, which
needs NCCL 2.32 in SHEAF_NCCL_LIB."""

import ctypes
import os
import signal
import time

import pytest
import sheaf
from conftest import wait_until
from sheaf import train, tune
from sheaf.train.torch import TorchConfig, TorchTrainer
from sheaf.util.collective import Group, RankLostError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

SHARED = {"env_vars": {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_SOCKET_IFNAME": "lo"}}


@pytest.fixture(scope="module", autouse=True)
def gpus():
    """A node with the machine's GPUs."""
    sheaf.init(num_cpus=4, log_to_driver=False)
    yield torch.cuda.device_count()
    sheaf.shutdown()


def seen():
    return sheaf.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.device_count()


# ------------------------------------------------------------------------------------- leases


def test_a_node_offers_the_gpus_of_its_machine(gpus):
    assert sheaf.cluster_resources()["GPU"] == gpus


def test_a_task_sees_the_gpus_that_it_holds(gpus):
    ids, visible, count = sheaf.get(sheaf.remote(num_gpus=1)(seen).remote())
    assert len(ids) == 1 and visible == str(ids[0]) and count == 1
    ids, visible, count = sheaf.get(sheaf.remote(num_gpus=gpus)(seen).remote())
    assert sorted(ids) == list(range(gpus)) and count == gpus


@sheaf.remote(num_gpus=0.5)
class Half:
    """Half a GPU."""

    def __init__(self, gigabytes=0):
        self.held = torch.ones(gigabytes << 28, device="cuda") if gigabytes else None

    def pid(self):
        return os.getpid()

    def total(self, value):
        return float((value.cuda() * 2).sum()), str(value.device)

    def seen(self):
        return seen()


def test_two_actors_share_a_gpu():
    actors = [Half.remote(1), Half.remote(1)]
    places = sheaf.get([actor.seen.remote() for actor in actors])
    assert places[0] == places[1]
    x = torch.arange(1000, dtype=torch.float32)
    assert sheaf.get([actor.total.remote(x) for actor in actors]) == [(999000.0, "cpu")] * 2


def test_the_memory_of_a_killed_actor_is_free_when_the_next_one_holds_its_gpu():
    @sheaf.remote(num_gpus=1)
    class Most:
        def __init__(self):
            free, _ = torch.cuda.mem_get_info()
            self.held = torch.empty(int(free * 0.7), dtype=torch.uint8, device="cuda").fill_(1)

        def pid(self):
            return os.getpid()

    for _ in range(3):
        actor = Most.remote()
        os.kill(sheaf.get(actor.pid.remote(), timeout=60), signal.SIGKILL)


def test_an_actor_that_is_killed_in_a_kernel_restarts():
    @sheaf.remote(num_gpus=1, max_restarts=1, max_task_retries=1)
    class Busy:
        def spin(self):
            torch.cuda._sleep(int(2e9))
            if not sheaf.get_runtime_context().was_current_actor_reconstructed:
                os.kill(os.getpid(), signal.SIGKILL)
            torch.cuda.synchronize()
            return os.getpid()

    assert sheaf.get(Busy.remote().spin.remote(), timeout=120) > 0


def test_too_much_memory_is_the_error_that_torch_has():
    @sheaf.remote(num_gpus=1)
    def too_much():
        return torch.empty(1 << 44, dtype=torch.uint8, device="cuda")

    with pytest.raises(torch.OutOfMemoryError):
        sheaf.get(too_much.remote())


# ------------------------------------------------------------------------------------- values


def test_tensors_of_the_gpu_are_values():
    @sheaf.remote(num_gpus=0.5)
    def double(given):
        assert given["x"].is_cuda
        return {"x": given["x"] * 2, "same": given["x"], "mean": given["x"].mean()}

    x = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    for given in ({"x": x}, sheaf.put({"x": x})):
        result = sheaf.get(double.remote(given))
        assert result["x"].is_cuda and torch.equal(result["x"], x * 2)
        assert torch.equal(result["same"], x) and float(result["mean"]) == float(x.mean())
    half = torch.full((3, 5), 1.5, device="cuda", dtype=torch.bfloat16)
    assert torch.equal(sheaf.get(sheaf.put(half)), half)


def test_models_and_gradients_travel():
    @sheaf.remote(num_gpus=0.5)
    def gradients(model, batch):
        model(batch).sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    model = torch.nn.Linear(8, 2).cuda()
    batch = torch.ones(4, 8, device="cuda")
    found = sheaf.get(gradients.remote(model, batch))
    assert all(gradient.is_cuda for gradient in found)
    assert torch.allclose(found[0], torch.full((2, 8), 4.0, device="cuda"))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_tensor_of_the_gpu_is_an_error_where_there_is_none():
    @sheaf.remote(runtime_env={"env_vars": {"CUDA_VISIBLE_DEVICES": ""}})
    def here(tensor):
        return str(tensor.device)

    with pytest.raises(RuntimeError, match="torch.cuda.is_available\\(\\) is False"):
        sheaf.get(here.remote(torch.ones(3, device="cuda")))


def test_arrays_of_jax_and_cupy_are_values():
    jax = pytest.importorskip("jax")
    cupy = pytest.importorskip("cupy")

    @sheaf.remote(
        num_gpus=0.5, runtime_env={"env_vars": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}}
    )
    def sums(x, y):
        return float(jax.numpy.asarray(x).sum()), y * 2, jax.devices()[0].platform

    x, y, platform = sheaf.get(sums.remote(list(range(10)), cupy.arange(5)), timeout=120)
    assert (x, y.tolist(), platform) == (45.0, [0, 2, 4, 6, 8], "gpu")


# ------------------------------------------------------------------------------------- groups


def filled(rank, count, dtype):
    """What a rank gives: small whole numbers, which every type holds and adds exactly."""
    return ((torch.arange(count) + 7 * rank) % 5 + 1).to(dtype).cuda()


REDUCED = {
    "sum": lambda given: given.sum(0),
    "product": lambda given: given.prod(0),
    "min": lambda given: given.amin(0),
    "max": lambda given: given.amax(0),
}
TYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
)


def all_operations(group, count=4096):
    """Each operation and type once, compared with torch's own sums; returns how many it were."""
    ranks, rank = group.world_size, group.rank
    done = 0
    for dtype in TYPES:
        given = [filled(one, count, dtype) for one in range(ranks)]
        wide = torch.stack([x.double() if x.is_floating_point() else x.long() for x in given])
        for op, reduce in REDUCED.items():
            want = reduce(wide).to(dtype)
            x = given[rank].clone()
            group.all_reduce(x, op)
            assert torch.equal(x, want), (op, dtype)
            x = given[rank].clone()
            group.reduce(x, root=ranks - 1, op=op)
            assert torch.equal(x, want if rank == ranks - 1 else given[rank]), (op, dtype)
            part = torch.zeros(count // ranks, dtype=dtype, device="cuda")
            group.reduce_scatter(part, given[rank][: part.numel() * ranks], op)
            assert torch.equal(part, want[: part.numel() * ranks].chunk(ranks)[rank]), (op, dtype)
            done += 3
        x = given[rank].clone()
        group.broadcast(x, root=0)
        assert torch.equal(x, given[0])
        out = torch.zeros(count * ranks, dtype=dtype, device="cuda")
        group.all_gather(out, given[rank])
        assert torch.equal(out, torch.cat(given))
        even = count // ranks * ranks
        out = torch.zeros(even, dtype=dtype, device="cuda")
        group.all_to_all(out, given[rank][:even])
        assert torch.equal(out, torch.cat([x[:even].chunk(ranks)[rank] for x in given]))
        done += 3
    return done


def test_a_group_of_one_rank_has_all_operations_in_order_of_streams():
    with Group(1, 0, "alone", backend="nccl") as group:
        assert all_operations(group) == 7 * 15
        x = group.empty(1 << 20, "float32")
        assert x.is_cuda
        stream = torch.cuda.Stream()
        for turn in range(20):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(
                    1000000
                )  # The operation waits for what is before it in the stream.
                x.fill_(turn)
                group.all_reduce(x)
            assert float(x.max()) == float(x.min()) == turn
        works = [group.all_reduce(x, async_op=True) for _ in range(50)]
        for work in works:
            work.wait()
        group.barrier()
        cupy = pytest.importorskip("cupy")
        array = cupy.arange(10, dtype=cupy.float32)
        group.all_reduce(array)
        assert array.tolist() == list(range(10))
        with pytest.raises(TypeError, match="a tensor on cpu"):
            group.all_reduce(torch.ones(3))
        with pytest.raises(ValueError, match="not contiguous"):
            group.all_reduce(torch.ones(4, 4, device="cuda").t()[1:3])


@sheaf.remote(num_gpus=0.25, runtime_env=SHARED, max_concurrency=2)
class Rank:
    """A rank of a group over NCCL."""

    def pid(self):
        return os.getpid()

    def form(self, world_size, rank, name):
        self.group = Group(world_size, rank, name, backend="nccl")
        return self.group.epoch

    def run(self, function, *args):
        return function(self.group, *args)


@pytest.fixture
def ranks(gpus):
    """Makes actors that are the ranks of a group."""
    library = os.environ.get("SHEAF_NCCL_LIB")
    if gpus == 1:
        if not library:
            pytest.skip("one GPU, and no SHEAF_NCCL_LIB that puts several ranks on it")
        version = ctypes.c_int()
        ctypes.CDLL(library).ncclGetVersion(ctypes.byref(version))
        if version.value < 23200:
            pytest.skip(f"one GPU, and NCCL {version.value}: want 23200 for several ranks on it")
    made = []

    def make(count, name):
        made.extend(Rank.remote() for _ in range(count))
        epochs = [actor.form.remote(count, rank, name) for rank, actor in enumerate(made)]
        assert len(set(sheaf.get(epochs, timeout=120))) == 1
        return made

    yield make
    for actor in made:
        sheaf.kill(actor)


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_in_processes_of_their_own(ranks, count):
    actors = ranks(count, f"of {count}")
    done = sheaf.get([actor.run.remote(all_operations) for actor in actors], timeout=120)
    assert done == [7 * 15] * count
    # Larger than any buffer of NCCL.
    done = sheaf.get([actor.run.remote(all_operations, 1 << 22) for actor in actors], timeout=120)
    assert done == [7 * 15] * count


def test_messages_cross_each_other(ranks):
    def exchange(group, rounds):
        other = 1 - group.rank
        x = torch.full((1 << 20,), float(group.rank), device="cuda")
        y = torch.empty_like(x)
        for turn in range(rounds):
            x += 1
            sent = group.send(x, other, async_op=True)
            group.recv(y, other)
            sent.wait()
            assert float(y[0]) == float(y[-1]) == other + turn + 1
        return rounds

    actors = ranks(2, "messages")
    assert sheaf.get([one.run.remote(exchange, 50) for one in actors], timeout=120) == [50, 50]


def reduces(group, seconds=60):
    """All-reduces until something fails; returns what."""
    x = torch.ones(1 << 24, device="cuda")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            group.all_reduce(x, "average")
        except Exception as error:
            return type(error).__name__, getattr(error, "rank", None), str(error)
    return None


def test_a_rank_that_dies_amid_operations_is_named_and_the_group_is_formed_anew(ranks):
    actors = ranks(2, "dies")
    lost = actors[1]
    pid = sheaf.get(lost.pid.remote())
    found = actors[0].run.remote(reduces)
    actors[1].run.remote(reduces)
    time.sleep(1)
    os.kill(pid, signal.SIGKILL)
    kind, rank, words = sheaf.get(found, timeout=60)
    assert (kind, rank) == (RankLostError.__name__, 1), words
    actors[1] = Rank.remote()
    epochs = sheaf.get(
        [actor.form.remote(2, rank, "dies") for rank, actor in enumerate(actors)], timeout=120
    )
    assert epochs[0] == epochs[1]
    done = sheaf.get([actor.run.remote(all_operations) for actor in actors], timeout=120)
    assert done == [7 * 15] * 2


# --------------------------------------------------------------------------- training, tuning


def train_loop(config):
    """A regression whose weights are known."""
    device = train.torch.get_device()
    torch.manual_seed(train.get_context().get_world_rank())
    model = train.torch.prepare_model(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(config["steps"]):
        x = torch.randn(64, 16, device=device)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weight = next(model.parameters()).detach()
    train.report(
        {
            "loss": float(loss.detach()),
            "device": str(weight.device),
            "backend": torch.distributed.get_backend(),
            "weight": float(weight.double().sum()),
        }
    )


@pytest.mark.parametrize(
    ("use_gpu", "workers", "backend", "share"),
    [(True, 1, "nccl", 1), (True, 2, "gloo", 0.5), (False, 2, "sheaf", 0)],
)
def test_a_trainer_uses_the_gpus_that_it_is_given(tmp_path, gpus, use_gpu, workers, backend, share):
    result = TorchTrainer(
        train_loop,
        train_loop_config={"steps": 300},
        torch_config=TorchConfig(backend="gloo" if backend == "gloo" else None),
        scaling_config=train.ScalingConfig(
            num_workers=workers,
            use_gpu=use_gpu,
            resources_per_worker={"CPU": 1, **({"GPU": share} if share else {})},
        ),
        run_config=train.RunConfig(storage_path=str(tmp_path)),
    ).fit()
    assert result.metrics["loss"] < 0.01
    assert abs(result.metrics["weight"] - 16) < 0.2
    assert result.metrics["backend"] == backend
    assert result.metrics["device"] == ("cuda:0" if use_gpu else "cpu")


def test_trials_share_a_gpu(tmp_path):
    def trial(config):
        x = torch.full((1000,), float(config["x"]), device="cuda")
        tune.report({"y": float((x * x).mean()), "gpus": len(sheaf.get_gpu_ids())})

    found = tune.Tuner(
        tune.with_resources(trial, {"cpu": 0.5, "gpu": 0.5}),
        param_space={"x": tune.grid_search([1, 2, 3, 4])},
        run_config=tune.RunConfig(storage_path=str(tmp_path)),
    ).fit()
    assert sorted(one.metrics["y"] for one in found) == [1, 4, 9, 16]
    assert all(one.metrics["gpus"] == 1 for one in found)


def test_what_is_free_is_free_again():
    wait_until(
        lambda: sheaf.available_resources().get("GPU") == sheaf.cluster_resources()["GPU"],
        lambda: f"{sheaf.available_resources()}",
    )
