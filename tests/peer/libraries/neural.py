# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Libraries that need torch."""

from program import main, program, say


@program
def evotorch_search():
    """SNES over 10 numbers, whose fitness 2 actors compute"""
    import torch
    from evotorch import Problem
    from evotorch.algorithms import SNES

    torch.set_num_threads(1)
    torch.manual_seed(1)

    def sphere(x):
        return (x**2).sum(dim=-1)

    problem = Problem(
        "min", sphere, solution_length=10, initial_bounds=(-5, 5), vectorized=True, num_actors=2
    )
    searcher = SNES(problem, stdev_init=5, popsize=40)
    searcher.run(30)
    say(searcher.step_count, round(float(searcher.status["best_eval"]), 3))
    say([round(float(x), 3) for x in searcher.status["center"][:3]])
    problem.kill_actors()


@program
def tianshou_environments():
    """4 environments of Gymnasium in actors of their own, waited for 2 at a time"""
    import gymnasium
    import numpy as np
    from tianshou.env import RayVectorEnv

    environments = RayVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(4)])
    environments.seed([10, 11, 12, 13])
    seen, _ = environments.reset()
    say(seen.astype(float).round(4).tolist())
    total = np.zeros(4)
    for step in range(15):
        seen, reward, ended, _, _ = environments.step(np.full(4, step % 2))
        total += reward
    say(seen.astype(float).round(4).tolist(), total.tolist(), ended.tolist())
    environments.close()


@program
def verl_worker_groups():
    """a group of 2 workers in placement groups, and its ways to hand out calls"""
    import ray
    import torch
    from verl import DataProto
    from verl.single_controller.base import Worker
    from verl.single_controller.base.decorator import Dispatch, Execute, register
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

    @ray.remote
    class Adder(Worker):
        def __init__(self, base):
            super().__init__()
            self.base = base

        @register(dispatch_mode=Dispatch.ONE_TO_ALL)
        def place(self):
            return self.rank, self.world_size

        @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
        def first(self, x):
            return self.base + x

        @register(dispatch_mode=Dispatch.ALL_TO_ALL)
        def each(self, x):
            return self.base + self.rank + x

        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
        def batch(self, data):
            data.batch["y"] = data.batch["x"] * 2 + self.rank
            return data

    pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
    group = RayWorkerGroup(pool, RayClassWithInitArgs(cls=Adder, base=100))
    say(group.world_size, group.place())
    say(group.first(5), group.each([1, 2]))
    data = DataProto.from_dict({"x": torch.arange(6)})
    say(group.batch(data).batch["y"].tolist())


if __name__ == "__main__":
    main()
