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


@program
def transformers_search():
    """Trainer.hyperparameter_search of a tiny BERT with random weights over 2 learning rates"""
    import os
    import tempfile

    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    import torch
    from ray import tune
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    torch.set_num_threads(1)
    rows = [
        {"input_ids": [k % 16 + 1, k % 7 + 1, k % 3 + 1, 2 if k % 2 else 3], "labels": k % 2}
        for k in range(32)
    ]

    def model():
        torch.manual_seed(1)
        config = BertConfig(
            vocab_size=32,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
        return BertForSequenceClassification(config)

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model_init=model,
            args=TrainingArguments(
                folder,
                num_train_epochs=3,
                per_device_train_batch_size=8,
                eval_strategy="epoch",
                save_strategy="epoch",
                use_cpu=True,
                report_to="none",
                disable_tqdm=True,
                seed=1,
            ),
            train_dataset=rows,
            eval_dataset=rows,
        )
        best = trainer.hyperparameter_search(
            direction="minimize",
            backend="ray",
            n_trials=1,
            hp_space=lambda _: {"learning_rate": tune.grid_search([1e-5, 1e-2])},
            resources_per_trial={"cpu": 1},
            storage_path=folder,
            name="search",
            verbose=0,
        )
        trials = best.run_summary.trials
        say(len(trials), best.hyperparameters, round(best.objective, 2))
        say([trial.status for trial in trials], [trial.last_result["epoch"] for trial in trials])
        saved = [best.run_summary.get_best_checkpoint(t, "objective", "min") for t in trials]
        say([checkpoint is not None for checkpoint in saved])


if __name__ == "__main__":
    main()
