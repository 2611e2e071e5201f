# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What programs know of Ray 2.60 Core: names, keywords, options, exceptions, fields of environments.
Read off Ray by inspection; test_names.py looks for all of them in sheaf, from_ray.py tells users."""

# What 24 public projects that import ray use most.
CORE = [
    "init",
    "shutdown",
    "is_initialized",
    "remote",
    "get",
    "put",
    "wait",
    "cancel",
    "kill",
    "method",
    "nodes",
    "cluster_resources",
    "available_resources",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "timeline",
    "ObjectRef",
    "ObjectID",
    "ActorHandle",
    "__version__",
    "__file__",
    "WORKER_MODE",
    "SCRIPT_MODE",
    "logger",
    "actor.ActorHandle",
    "actor.ActorClass",
    "actor.exit_actor",
    "remote_function.RemoteFunction",
    "types.ObjectRef",
    "exceptions.RayActorError",
    "exceptions.RayTaskError",
    "exceptions.ActorDiedError",
    "exceptions.ActorUnavailableError",
    "exceptions.ActorUnschedulableError",
    "exceptions.GetTimeoutError",
    "exceptions.WorkerCrashedError",
    "exceptions.RaySystemError",
    "exceptions.RayError",
    "runtime_env.RuntimeEnv",
    "cloudpickle.dumps",
    "cloudpickle.loads",
    "cloudpickle.pickle.dumps",
    "cloudpickle",
    "util.get_node_ip_address",
    "util.placement_group",
    "util.placement_group.PlacementGroup",
    "util.placement_group.placement_group",
    "util.placement_group.remove_placement_group",
    "util.placement_group.placement_group_table",
    "util.placement_group.get_current_placement_group",
    "util.placement_group_table",
    "util.remove_placement_group",
    "util.get_current_placement_group",
    "util.get_placement_group",
    "util.scheduling_strategies.NodeAffinitySchedulingStrategy",
    "util.scheduling_strategies.PlacementGroupSchedulingStrategy",
    "util.scheduling_strategies.NodeLabelSchedulingStrategy",
    "util.scheduling_strategies.In",
    "util.scheduling_strategies.NotIn",
    "util.scheduling_strategies",
    "util.actor_pool.ActorPool",
    "util.ActorPool",
    "util.queue.Queue",
    "util.queue._QueueActor",
    "util.list_named_actors",
    "util.register_serializer",
    "util.metrics",
    "util.metrics.Metric",
    "util.metrics.Counter",
    "util.metrics.Gauge",
    "util.metrics.Histogram",
    "util.collective.init_collective_group",
    "util.collective.broadcast",
    "util.collective.barrier",
    "util.collective.send",
    "util.collective.recv",
    "util.collective.is_group_initialized",
    "util.collective.destroy_collective_group",
    "util.state.list_actors",
    "util.annotations.PublicAPI",
    "util.annotations.DeveloperAPI",
    "util.PublicAPI",
    "util.client.ray.is_connected",
    "util.connect",
    "util.dask.ray_dask_get",
    "experimental.tqdm_ray.tqdm",
    "autoscaler.sdk.request_resources",
    "worker.get_dashboard_url",
    "_private.state.available_resources_per_node",
    "_private.state.total_resources_per_node",
    "_private.state.actors",
    "_private.services.get_node_ip_address",
    "job_submission.JobSubmissionClient",
    "job_submission.JobStatus",
]

MORE = [
    "LoggingConfig",
    "Language",
    "client",
    "ClientBuilder",
    "ClientBuilder.connect",
    "cpp_function",
    "java_function",
    "java_actor_class",
    "NodeID",
    "JobID",
    "ActorID",
    "TaskID",
    "WorkerID",
    "PlacementGroupID",
    "UniqueID",
    "FunctionID",
    "ActorClassID",
    "ObjectRefGenerator",
    "DynamicObjectRefGenerator",
    "job_config.JobConfig",
    "cross_language.cpp_actor_class",
    "actor.ActorProxy",
    "actor.ActorMethod",
    "cluster_utils.Cluster",
    "util.as_completed",
    "util.map_unordered",
    "util.inspect_serializability",
    "util.check_serialize.inspect_serializability",
    "util.log_once",
    "util.debug.log_once",
    "util.deregister_serializer",
    "util.disconnect",
    "util.accelerators.NVIDIA_A100",
    "util.accelerators.NVIDIA_H100",
    "util.accelerators.GOOGLE_TPU_V4",
    "util.tpu.get_current_pod_name",
    "util.iter.from_items",
    "util.dask.enable_dask_on_ray",
    "util.joblib.register_ray",
    "util.spark.setup_ray_cluster",
    "util.tracing.setup_tracing",
    "util.rpdb.set_trace",
    "util.debugpy.set_trace",
    "util.pdb",
    "util.ray_debugpy",
    "util.queue.Empty",
    "util.queue.Full",
    "util.multiprocessing.Pool",
    "util.get_node_instance_id",
    "util.scheduling_strategies.Exists",
    "util.scheduling_strategies.DoesNotExist",
    "util.metrics.Counter.inc",
    "util.metrics.Gauge.set",
    "util.metrics.Histogram.observe",
    "util.state.list_nodes",
    "util.state.list_tasks",
    "util.state.list_objects",
    "util.state.list_workers",
    "util.state.list_jobs",
    "util.state.list_placement_groups",
    "util.state.get_actor",
    "util.state.get_node",
    "util.state.get_task",
    "util.state.get_worker",
    "util.state.get_job",
    "util.state.get_placement_group",
    "util.state.get_log",
    "util.state.list_logs",
    "util.state.get_objects",
    "util.state.summarize_tasks",
    "util.state.summarize_actors",
    "util.state.summarize_objects",
    "util.collective.create_collective_group",
    "util.collective.allreduce",
    "util.collective.allgather",
    "util.collective.reduce",
    "util.collective.reducescatter",
    "util.collective.get_rank",
    "util.collective.get_collective_group_size",
    "util.collective.types.ReduceOp",
    "util.collective.types.Backend",
    "train.report",
    "train.get_context",
    "train.get_checkpoint",
    "train.Checkpoint",
    "train.ScalingConfig",
    "train.RunConfig",
    "train.FailureConfig",
    "train.CheckpointConfig",
    "train.get_dataset_shard",
]

# What calls name of each: ray.NAME(keyword=...).
KEYWORDS = {
    "init": """
        num_cpus num_gpus resources labels object_store_memory local_mode ignore_reinit_error
        include_dashboard dashboard_host dashboard_port job_config configure_logging
        logging_level logging_format logging_config log_to_driver namespace runtime_env
        enable_resource_isolation cgroup_path system_reserved_cpu system_reserved_memory
        proxy_server_url _system_config _temp_dir _node_ip_address _redis_password
        _tracing_startup_hook address
    """,
    "get": "timeout",
    "wait": "num_returns timeout fetch_local",
    "kill": "no_restart",
    "cancel": "force recursive",
    "get_actor": "name namespace",
    "shutdown": "wait_for_processes",
    "timeline": "filename",
    "util.queue.Queue": "maxsize actor_options",
    "util.queue.Queue.put": "item block timeout",
    "util.queue.Queue.get": "block timeout",
    "util.ActorPool.submit": "fn value",
    "util.ActorPool.get_next": "timeout ignore_if_timedout",
    "util.multiprocessing.Pool": """
        processes initializer initargs maxtasksperchild context ray_address ray_remote_args
    """,
    "util.placement_group.placement_group": """
        bundles strategy name lifetime _soft_target_node_id bundle_label_selector
    """,
    "util.scheduling_strategies.PlacementGroupSchedulingStrategy": """
        placement_group placement_group_bundle_index placement_group_capture_child_tasks
    """,
    "util.scheduling_strategies.NodeAffinitySchedulingStrategy": """
        node_id soft _spill_on_unavailable _fail_on_unavailable
    """,
    "util.scheduling_strategies.NodeLabelSchedulingStrategy": "hard soft",
    "util.metrics.Counter": "name description tag_keys",
    "util.metrics.Gauge": "name description tag_keys",
    "util.metrics.Histogram": "name description boundaries tag_keys",
    "util.state.list_actors": "address filters limit detail",
    "util.inspect_serializability": "base_obj name depth print_file",
    "util.register_serializer": "cls serializer deserializer",
    "util.map_unordered": "fn items backpressure_size chunk_size yield_obj_refs",
    "util.as_completed": "refs chunk_size yield_obj_refs",
    "util.list_named_actors": "all_namespaces",
    "util.collective.init_collective_group": "world_size rank backend group_name",
    "cluster_utils.Cluster": "initialize_head connect head_node_args shutdown_at_exit",
    "cluster_utils.Cluster.remove_node": "node allow_graceful",
    "train.ScalingConfig": """
        num_workers use_gpu resources_per_worker placement_strategy accelerator_type
    """,
    "train.RunConfig": "name storage_path failure_config checkpoint_config callbacks",
    "train.report": "metrics checkpoint checkpoint_dir_name",
}

COMMON = """
    num_cpus num_gpus memory resources accelerator_type name runtime_env scheduling_strategy
    label_selector fallback_strategy placement_group placement_group_bundle_index
    placement_group_capture_child_tasks object_store_memory enable_task_events _labels
"""
OPTIONS = {
    "task": COMMON
    + """
        num_returns max_retries retry_exceptions max_calls _generator_backpressure_num_objects
        _num_objects_per_yield
    """,
    "actor": COMMON
    + """
        max_restarts max_task_retries max_concurrency concurrency_groups lifetime namespace
        get_if_exists max_pending_calls allow_out_of_order_execution enable_tensor_transport
        _actor_generator_backpressure_num_objects
    """,
    "method": """
        num_returns concurrency_group max_task_retries retry_exceptions
        _generator_backpressure_num_objects _num_objects_per_yield enable_task_events
        tensor_transport
    """,
}

# By their bases.
EXCEPTIONS = {
    "RayError": """
        RayTaskError TaskCancelledError CrossLanguageError WorkerCrashedError
        LocalRayletDiedError NodeDiedError UserCodeException AuthenticationError RpcError
        RuntimeEnvSetupError ObjectStoreFullError OutOfDiskError OutOfMemoryError
        GetTimeoutError PlasmaObjectNotAvailable AsyncioActorExit PendingCallsLimitExceeded
        TaskPlacementGroupRemoved ActorPlacementGroupRemoved TaskUnschedulableError
        ActorUnschedulableError ActorAlreadyExistsError ActorHandleNotFoundError
        ObjectRefStreamEndOfStreamError UnserializableException
        OufOfBandObjectRefSerializationException RayActorError ObjectLostError RaySystemError
    """,
    "RayActorError": "ActorDiedError ActorUnavailableError",
    "ObjectLostError": """
        ObjectFetchTimedOutError ReferenceCountingAssertionError ObjectFreedError OwnerDiedError
        ObjectReconstructionFailedError
    """,
    "RaySystemError": """
        RayChannelError RayCgraphCapacityExceeded RayDirectTransportError
        StreamingGeneratorReplayInconsistentError
    """,
    "RayChannelError": "RayChannelTimeoutError",
}

# Of RuntimeContext.
CONTEXT = [
    "get_job_id",
    "get_node_id",
    "get_worker_id",
    "get_task_id",
    "get_task_name",
    "get_task_function_name",
    "get_actor_id",
    "get_actor_name",
    "namespace",
    "get_placement_group_id",
    "should_capture_child_tasks_in_placement_group",
    "get_assigned_resources",
    "get_runtime_env_string",
    "runtime_env",
    "current_actor",
    "gcs_address",
    "get_accelerator_ids",
    "get_node_labels",
    "was_current_actor_reconstructed",
    "is_canceled",
    "get_session_name",
    "get_temp_dir",
    "get",
]

# Of runtime_env.
ENVIRONMENT = [
    "working_dir",
    "py_modules",
    "py_executable",
    "excludes",
    "pip",
    "uv",
    "conda",
    "container",
    "image_uri",
    "env_vars",
    "worker_process_setup_hook",
    "java_jars",
    "config",
    "_nsight",
    "_rocprof_sys",
    "_ray_release",
    "_ray_commit",
    "_inject_current_ray",
]

# Libraries beside Ray Core and Ray Train.
LIBRARIES = ["data", "tune", "serve", "rllib", "llm", "dag", "workflow"]
