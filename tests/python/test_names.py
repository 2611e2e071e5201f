# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The names by which programs know Ray Core."""

import functools
import importlib

import pytest

CORE = """
init shutdown is_initialized remote get put wait cancel kill method nodes cluster_resources available_resources get_actor get_gpu_ids
get_runtime_context timeline ObjectRef ObjectID ActorHandle __version__ __file__ WORKER_MODE SCRIPT_MODE logger actor.ActorHandle
actor.ActorClass actor.exit_actor remote_function.RemoteFunction types.ObjectRef exceptions.RayActorError exceptions.RayTaskError
exceptions.ActorDiedError exceptions.ActorUnavailableError exceptions.ActorUnschedulableError exceptions.GetTimeoutError
exceptions.WorkerCrashedError exceptions.RaySystemError exceptions.RayError runtime_env.RuntimeEnv cloudpickle.dumps cloudpickle.loads
cloudpickle.pickle.dumps cloudpickle util.get_node_ip_address util.placement_group util.placement_group.PlacementGroup
util.placement_group.placement_group util.placement_group.remove_placement_group util.placement_group.placement_group_table
util.placement_group.get_current_placement_group util.placement_group_table util.remove_placement_group util.get_current_placement_group
util.get_placement_group util.scheduling_strategies.NodeAffinitySchedulingStrategy
util.scheduling_strategies.PlacementGroupSchedulingStrategy util.scheduling_strategies.NodeLabelSchedulingStrategy
util.scheduling_strategies.In util.scheduling_strategies.NotIn util.scheduling_strategies util.actor_pool.ActorPool util.ActorPool
util.queue.Queue util.queue._QueueActor util.list_named_actors util.register_serializer util.metrics util.metrics.Metric
util.metrics.Counter util.metrics.Gauge util.metrics.Histogram util.collective.init_collective_group util.collective.broadcast
util.collective.barrier util.collective.send util.collective.recv util.collective.is_group_initialized
util.collective.destroy_collective_group util.state.list_actors util.annotations.PublicAPI util.annotations.DeveloperAPI util.PublicAPI
util.client.ray.is_connected util.connect util.dask.ray_dask_get experimental.tqdm_ray.tqdm autoscaler.sdk.request_resources
worker.get_dashboard_url _private.state.available_resources_per_node _private.state.total_resources_per_node _private.state.actors
_private.services.get_node_ip_address job_submission.JobSubmissionClient job_submission.JobStatus
""".split()


@pytest.mark.parametrize("name", CORE)
def test_the_name_is_there(name):
    parts = name.split(".")
    for split in range(len(parts), -1, -1):
        try:
            module = importlib.import_module(".".join(["sheaf", *parts[:split]]))
        except ModuleNotFoundError:
            continue
        functools.reduce(getattr, parts[split:], module)
        return
    raise AssertionError(name)


def test_what_is_absent_says_so():
    import sheaf
    from sheaf.job_submission import JobSubmissionClient

    with pytest.raises(NotImplementedError, match="JobSubmissionClient is not in Sheaf yet"):
        JobSubmissionClient("http://127.0.0.1:8265")
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        sheaf.nothing_of_the_kind


@pytest.mark.usefixtures("node")
def test_actors_and_nodes_are_listed():
    import sheaf
    from sheaf.util import state

    @sheaf.remote(num_cpus=0)
    class Listed:
        def ready(self):
            return True

    actor = Listed.options(name="listed").remote()
    sheaf.get(actor.ready.remote())
    (row,) = state.list_actors(filters=[("name", "=", "listed")])
    assert row.actor_id == actor._actor_id.hex() and row["class_name"].endswith("Listed")
    assert state.list_nodes()[0].node_id == sheaf.nodes()[0]["NodeID"]
