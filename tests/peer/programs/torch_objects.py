# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tensors and models of PyTorch as arguments and results of tasks and actors."""

import copy

import ray
import torch
from datasets import fails
from program import main, program, say
from torch_values import shown


@program
def arguments_and_results():
    @ray.remote
    def same(x):
        return x

    for x in (
        torch.arange(3),
        torch.ones(2, 2, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.float16),
        torch.tensor(1.5),
        torch.zeros(0),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]),
        torch.arange(6).reshape(2, 3).t(),
        [torch.ones(1), {"a": torch.zeros(1)}],
    ):
        say(shown(ray.get(same.remote(x))))
        say(shown(ray.get(same.remote(ray.put(x)))))


@program
def large_tensors():
    x = torch.arange(1_000_000).float()

    @ray.remote
    def total(x):
        return x.sum(), x[-1]

    say(shown(ray.get(total.remote(x))))
    say(torch.equal(ray.get(ray.put(x)), x))
    one, two = torch.ones(300_000), torch.ones(300_000)
    back = ray.get(ray.put([one, one, two]))
    say(back[0] is back[1], back[0] is back[2])


@program
def writing_into_results():
    @ray.remote
    def made(n):
        return torch.ones(n)

    for n in (4, 1_000_000):
        x = ray.get(made.remote(n))
        x += 1
        say(float(x.sum()) == 2 * n)
        say(float(ray.get(made.remote(n)).sum()) == n)


@program
def writing_into_what_is_shared():
    reference = ray.put(torch.ones(1_000_000))
    x = ray.get(reference)
    x += 1
    say(float(x[0]), float(ray.get(reference)[0]))


@program
def gradients_and_parameters():
    @ray.remote
    def same(x):
        return x

    x = ray.get(same.remote(torch.ones(2, requires_grad=True)))
    say(x.requires_grad, x.is_leaf)
    p = ray.get(same.remote(torch.nn.Parameter(torch.ones(2))))
    say(type(p).__name__, p.requires_grad)
    y = torch.ones(2, requires_grad=True) * 2
    fails(lambda: shown(ray.get(same.remote(y))))
    say(shown(ray.get(same.remote(y.detach()))))


@program
def models_and_optimizers():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))

    @ray.remote
    def trained(model, state):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if state:
            optimizer.load_state_dict(state)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        return model.state_dict(), optimizer.state_dict()

    before = copy.deepcopy(model.state_dict())
    weights, state = ray.get(trained.remote(model, None))
    say(list(weights), sorted(state))
    say(all(torch.equal(before[k], v) for k, v in model.state_dict().items()))
    model.load_state_dict(weights)
    again, _ = ray.get(trained.remote(model, state))
    say(any(not torch.equal(again[k], weights[k]) for k in weights))


@program
def a_parameter_server_of_tensors():
    @ray.remote
    class Server:
        def __init__(self):
            self.weights = torch.zeros(3)

        def add(self, *gradients):
            self.weights += sum(gradients)
            return self.weights

    @ray.remote
    def gradient(weights, n):
        return torch.full((3,), float(n)) + weights * 0

    server = Server.remote()
    weights = server.add.remote()
    for _ in range(2):
        weights = server.add.remote(*[gradient.remote(weights, n) for n in range(3)])
    say(shown(ray.get(weights)))


@program
def generators_of_tensors():
    @ray.remote(num_returns="streaming")
    def made():
        for n in range(3):
            yield torch.full((2,), n)

    say([ray.get(one).tolist() for one in made.remote()])


@program
def dtypes_devices_and_sizes_travel():
    @ray.remote
    def same(*values):
        return values

    back = ray.get(same.remote(torch.float32, torch.device("cpu"), torch.Size([1, 2])))
    say(back[0] is torch.float32, back[1] == torch.device("cpu"), type(back[2]).__name__, *back[2])


@program
def sparse_and_quantized_tensors():
    @ray.remote
    def same(x):
        return x

    back = ray.get(same.remote(torch.eye(2).to_sparse()))
    say(back.is_sparse, back.to_dense().tolist())
    back = ray.get(same.remote(torch.sparse_coo_tensor([[0], [1]], [2.0], (2, 2))))
    say(back.to_dense().tolist())


@program
def errors_of_torch_in_tasks():
    @ray.remote
    def wrong():
        return torch.ones(2) @ torch.ones(3)

    try:
        ray.get(wrong.remote())
    except RuntimeError as error:
        say(isinstance(error, ray.exceptions.RayTaskError), "size" in str(error))


@program
def datasets_and_loaders_in_tasks():
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=4)

    @ray.remote
    def consumed(loader):
        return [batch[0].tolist() for batch in loader]

    say(ray.get(consumed.remote(loader)))


if __name__ == "__main__":
    main()
