# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""sheaf.train on several nodes, one of which dies."""

import contextlib
import threading

import numpy as np
import pytest
import sheaf
from sheaf import train
from sheaf.cluster_utils import Cluster
from test_train import load, save, steps
from test_train_digits import program


@contextlib.contextmanager
def nodes(count, cpus):
    """A cluster of `count` nodes with so many CPUs each; this process is its driver."""
    sheaf.shutdown()
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": cpus, "object_store_memory": 64 << 20}
    )
    try:
        for _ in range(count - 1):
            made.add_node(num_cpus=cpus, object_store_memory=64 << 20)
        sheaf.init(address=made.address, log_to_driver=False)
        made.wait_for_nodes()
        yield made
    finally:
        sheaf.shutdown()
        made.shutdown()


@pytest.fixture
def cluster():
    with nodes(3, 1) as made:
        yield made


def count(config):
    context = train.get_context()
    step = load(train.get_checkpoint(), {"step": 0})["step"]
    while True:
        step += 1
        checkpoint = save(
            {"step": step}, f"{config['scratch']}/{context.epoch}-{step}-{context.get_world_rank()}"
        )
        train.report({"step": step, "world": context.get_world_size()}, checkpoint)
        if context.epoch == 1 and step % 5 == 0:
            return


class KillNode(train.UserCallback):
    """Kills a node behind the third report."""

    def __init__(self, cluster):
        self._cluster, self._thread = cluster, None

    def after_report(self, run_context, metrics, checkpoint):
        if self._thread is None and metrics[0]["step"] >= 3:
            self._thread = threading.Thread(
                target=self._cluster.remove_node, args=(self._cluster.worker_nodes[1], False)
            )
            self._thread.start()

    def on_end(self, run_context, result):
        self._thread.join()


@pytest.mark.parametrize(("workers", "worlds"), [(2, [2]), ((1, 3), [3, 2])])
def test_training_goes_on_without_a_node_that_dies(cluster, tmp_path, workers, worlds):
    callback = KillNode(cluster)
    if workers == 2:  # The head is full at first, so that the node which dies has a worker.
        holder = [sheaf.remote(num_cpus=1)(Full).remote()]
        sheaf.get(holder[0].ready.remote())
        callback.after_exception = lambda *about: holder.clear()
    result = train.DataParallelTrainer(
        count,
        train_loop_config={"scratch": str(tmp_path / "scratch")},
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(
            name="nodes",
            storage_path=tmp_path,
            callbacks=[callback],
            failure_config=train.FailureConfig(2),
            progress=False,
        ),
    ).fit()
    assert steps(result) == list(range(1, len(result.metrics_history) + 1))
    assert list(dict.fromkeys(row["world"] for row in result.metrics_history)) == worlds
    (again,) = [
        event.text
        for event in result.events
        if " kept, " in event.text and "from checkpoint" in event.text
    ]
    assert ("(1 kept, 1 new)" if workers == 2 else "(2 kept, 0 new)") in again


class Full:
    def ready(self):
        return True


class ReplaceNode(train.UserCallback):
    """Kills a node when a step has been recorded, and starts another."""

    def __init__(self, cluster, step):
        self._cluster, self._step = cluster, step

    def after_report(self, run_context, metrics, checkpoint):
        # The driver does nothing else meanwhile, so no rank comes further than to the next
        # checkpoint.
        if metrics[0]["step"] == self._step:
            self._step = None
            self._cluster.remove_node(self._cluster.worker_nodes[0], allow_graceful=False)
            self._cluster.add_node(wait=False, num_cpus=2, object_store_memory=64 << 20)


def test_two_nodes_give_the_weights_of_one_process_also_when_one_is_lost():
    with program() as digits, nodes(2, 2) as cluster:
        images = digits.load()[0]
        for steps_in_all, callbacks in ((25, []), (65, [ReplaceNode(cluster, 25)])):
            result, weights = digits.fit(4, steps_in_all, callbacks=callbacks)
            assert steps(result) == list(range(1, steps_in_all + 1))
            np.testing.assert_allclose(
                weights, digits.alone(images, steps_in_all), rtol=0, atol=1e-12
            )
            begun = [event.text for event in result.events if " begin from " in event.text]
            assert begun[0] == "4 workers on 2 nodes (0 kept, 4 new) begin from the start"
        assert begun[-1].startswith("4 workers on 2 nodes") and begun[-1].endswith(
            "begin from checkpoint_000020, step 20"
        ), result.events
