# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Why a public name of Ray is absent here, or is something else: one sentence for users each. What
differs and has no reason here is a bug; a reason that no name needs fails the tests, too.

A key is "MODULE NAME", or "MODULE NAME.MEMBER"; `*` stands for anything. The first that fits
counts. Where a name is there and raises NotImplementedError, its words are the reason."""

_MADE_BY_RUNTIME = "Ids are made by the runtime, and what is in them is Sheaf's own."
_JOB_CLIENT = "The client is Sheaf's own: these are dataclasses, and no addresses of modules."
_DASHBOARD = "The job server is Sheaf's own, in C++."
_NO_ENVIRONMENT = "Sheaf makes no conda environments and no containers."
_NO_RDT = "Tensors travel as other values; sheaf.util.collective moves them between actors."
_NO_LIBRARY = "A library beside Ray Core, which Sheaf does not have."
_ROWS = "Rows are sheaf.util.state.Row: dicts whose keys are attributes, too."
_INNER = "A part of Ray's own inside, which no interface of Ray's gives or takes."
_POOL = "A part of the pool's inside: use Pool and what its methods give."

REASONS: dict[str, str] = {
    # --- ray ---
    "ray ActorID.job_id": _MADE_BY_RUNTIME,
    "ray TaskID.*_id": _MADE_BY_RUNTIME,
    "ray TaskID.for_*": _MADE_BY_RUNTIME,
    "ray *ID.of": _MADE_BY_RUNTIME,
    "an ActorID job_id": _MADE_BY_RUNTIME,
    "ray Language*": "An enumeration of Python, with `value` as an attribute.",
    "ray LoggingConfig": "additional_log_standard_attrs is None by default, which is an empty list.",
    "ray ObjectID": "ObjectRef is no id, and derives from none.",
    "ray* ObjectRef": "ObjectRef is no id, and derives from none.",
    "private names ray._raylet.ObjectID": "ObjectRef is no id, and derives from none.",
    "private names ray._raylet.ObjectRef": "ObjectRef is no id, and derives from none.",
    "ray _config": "Ray's settings of the system: Sheaf has other ones (`sheaf start --help`).",
    "private names ray._config": "Ray's settings of the system: Sheaf has other ones (`sheaf start --help`).",
    "*workflow": _NO_LIBRARY,
    "*widgets*": "How things look in notebooks is in their _repr_html_.",
    "ray get": "`object_refs` is given by place, and there is one way through the object store.",
    "private names ray*worker.get": "`object_refs` is given by place, and there is one way through the object store.",
    "ray put": "`value` is given by place; its owner is the process that puts it.",
    "private names ray*worker.put": "`value` is given by place; its owner is the process that puts it.",
    "ray init": "logging_level is None by default: Sheaf's loggers are left as they are.",
    "private names ray*worker.init": "logging_level is None by default: Sheaf's loggers are left as they are.",
    "ray.actor ActorClass.remote": "`remote` is an attribute that is called: it has the class's signature.",
    "* STREAMING_GENERATOR_RETURN": _INNER,
    # --- exceptions ---
    "ray.exceptions RayError.*bytes": "Errors travel as pickles: there is no form of protobuf.",
    "ray.exceptions RayError.from_ray_exception": "Errors travel as pickles: there is no form of protobuf.",
    "ray.exceptions PYTHON": _INNER,
    "ray.exceptions RAY_EXCEPTION_TYPES": _INNER,
    "ray.exceptions CrossLanguageError": "Its fields are language, function_name, cause_type and cause_message.",
    # --- environments ---
    "ray.runtime_env RuntimeEnv.conda_*": _NO_ENVIRONMENT,
    "ray.runtime_env RuntimeEnv.*_uri": _NO_ENVIRONMENT,
    "ray.runtime_env RuntimeEnv.*_uris": _NO_ENVIRONMENT,
    "ray.runtime_env RuntimeEnv.plugins": _NO_ENVIRONMENT,
    "ray.runtime_env RuntimeEnv.py_container_*": _NO_ENVIRONMENT,
    "ray.runtime_env RuntimeEnv.virtualenv_name": _NO_ENVIRONMENT,
    "ray.runtime_env RuntimeEnvConfig.*proto*": "There is no form of protobuf.",
    # --- what is beside tasks, actors and objects ---
    "ray.cross_language cpp_actor_class": "Takes the name of the class alone, too.",
    "ray.client_builder CLIENT_DOCS_URL": "There is no server of clients.",
    "ray.client_builder ClientContext*": "connect() gives what init gives.",
    "ray.cluster_utils AutoscalingCluster.*": "Cluster adds and removes nodes by hand.",
    "ray.cluster_utils FAKE_HEAD_NODE_ID": "Cluster adds and removes nodes by hand.",
    "ray.job_submission *": _JOB_CLIENT,
    "private names ray.dashboard.*": _DASHBOARD,
    "ray.util placement_group": "The module and the function in one: it can be called.",
    "ray.util.placement_group NODE_ID_LABEL_KEY": _INNER,
    "ray.util.placement_group PLACEMENT_GROUP_BUNDLE_RESOURCE_NAME": _INNER,
    "ray.util.placement_group check_placement_group_index": _INNER,
    "ray.util.placement_group validate_placement_group": _INNER,
    "private names ray.util.placement_group._validate_resource_shape": _INNER,
    "a PlacementGroup bundle_cache": "bundle_specs has the bundles.",
    "ray.util.state StateApiClient.*": "list_actors() and the like of sheaf.util.state ask the cluster.",
    "ray.util.state.common *": _ROWS,
    "ray.util.multiprocessing.pool AsyncResult": _POOL,
    "private names *.AsyncResult": _POOL,
    "*IMapIterator*": _POOL,
    "*ResultThread*": _POOL,
    "*Pool*Error": "An exception of a call is raised as it is.",
    "*PoolActor": _POOL,
    "ray.util.multiprocessing.pool div_round_up": _POOL,
    "ray.util.multiprocessing.pool ray_???_if_needed": _POOL,
    "ray.experimental.multiprocessing Pool": "The pool under its old name is the same class.",
    "ray.util.collective* [ci]*_collective_group": "The backend is 'shm' by default, which needs no GPU.",
    "ray.util.collective.collective GroupManager.*": "get_group_handle() gives a group of this process.",
    "ray.util.collective.types Backend.*": "In lower case; backends are taken in any case.",
    "ray.util.serialization StandaloneSerializationContext": _INNER,
    "private names ray.serialization.SerializationContext": _INNER,
    "ray.util.debug Suspect*": "A search for leaks, which Sheaf does not have.",
    "ray.util.debugpy *": "Run the function in the driver, under the editor's debugger.",
    "ray.experimental CommunicatorMetadata": _NO_RDT,
    "ray.experimental RDTManager*": _NO_RDT,
    "ray.experimental TensorTransport*": _NO_RDT,
    "ray.experimental.rdt *": _NO_RDT,
    "ray.experimental.tqdm_ray RAY_TQDM_MAGIC": "Begins the lines by which workers tell their bars.",
    "ray.experimental.shuffle *": "An example of Ray's: write it with tasks.",
    "ray.util.actor_group *": "Keep handles in a list: [Class.remote() for _ in range(n)].",
    "ray.util.iter *": "Parallel iterators are not in Sheaf: use generators and ActorPool.",
    "ray.util.spark *": "Sheaf does not start clusters inside of Spark.",
    "ray.util.tpu *": "Sheaf knows no TPUs.",
    # --- what libraries touch ---
    "private names ray.__commit__": "Sheaf is no commit of Ray.",
    "private names ray._private.dict.*": _INNER,
    "private names ray._private.services.*": "Addresses are sessions' directories or HOST:PORT, as init takes them.",
    "private names ray._private.utils.get_ray_doc_version": _INNER,
    "private names ray._private.worker.*Context": "What init gives has no class for itself without a node.",
    "private names ray._private.worker.RemoteFunctionNoArgs": "A RemoteFunction, in annotations.",
    "private names ray.actor.ActorMethod._remote": "Options are taken by name only.",
    "private names ray.autoscaler.*": "The size of the cluster is fixed.",
    "private names ray.thirdparty_files.psutil": "Import psutil itself.",
    "private names ray.util.client.ray.is_connected": "It takes nothing.",
    "* worker": "sheaf.get_runtime_context() tells where a process is.",
    "* _actor_method_call": _INNER,
    "* _serialization_helper": _INNER,
    "* _last_export_cluster_and_job": _INNER,
    "* __doc__": "That of the function: None where it has none.",
    "a NodeLabelSchedulingStrategy *": "The labels as they were given, in a dict.",
    "rows of timeline() *": "Processes and threads are numbers, and nothing has a colour.",
    "* __ray_metadata__": "Has the fields that libraries read.",
    "* __ray_metadata__.*": "Has the fields that libraries read.",
}
