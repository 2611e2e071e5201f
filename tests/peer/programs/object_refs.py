# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""References and ids as values: equality, text forms, parts, copies, pickles."""

import copy
import pickle

import ray
from program import main, outcome, program, say


@ray.remote
def one():
    return 1


@ray.remote(num_returns=2)
def two():
    return 1, 2


@program
def equality_and_hash():
    a, b = ray.put(1), ray.put(1)
    say(a == a, a == b, a != b, a == 1, a == None)  # noqa: E711
    say(hash(a) == hash(a), len({a, b, a}), {a: "x"}[a])
    outcome(lambda: a < b)
    outcome(lambda: bool(a))


@program
def text_forms():
    ref = ray.put(1)
    say(repr(ref) == str(ref), repr(ref) == f"ObjectRef({ref.hex()})")
    say(type(ref.hex()).__name__, type(ref.binary()).__name__)
    say(ref.binary().hex() == ref.hex(), f"{ref}" == repr(ref))


@program
def types_of_references():
    ref = ray.put(1)
    say(type(ref).__name__, isinstance(ref, ray.ObjectRef), ray.ObjectRef is ray.ObjectID)
    say(issubclass(ray.ObjectRef, object), callable(ref))
    outcome(lambda: ref.nothing)
    outcome(lambda: ray.ObjectRef[int] is not None)


@program
def parts_of_references():
    ref = one.remote()
    say(type(ref.task_id()).__name__, type(ref.job_id()).__name__)
    say(ref.job_id() == ray.get_runtime_context().job_id)
    outcome(lambda: ref.job_id().hex() == ray.get_runtime_context().get_job_id())
    a, b = two.remote()
    say(a.task_id() == b.task_id(), a == b, a.task_id() == ref.task_id())
    say(ref.is_nil())
    outcome(lambda: ref.size() == len(ref.binary()))


@program
def the_task_of_a_reference():
    @ray.remote
    def own():
        return ray.get_runtime_context().get_task_id()

    ref = own.remote()
    say(ray.get(ref) == ref.task_id().hex())


@program
def nil_and_random_references():
    nil = ray.ObjectRef.nil()
    say(nil.is_nil())
    say(type(ray.ObjectRef.from_random()).__name__)
    say(ray.ObjectRef.from_random() == ray.ObjectRef.from_random())


@program
def references_made_of_bytes():
    ref = ray.put("value")
    other = ray.ObjectRef(ref.binary())
    say(other == ref, hash(other) == hash(ref))
    outcome(ray.ObjectRef, b"short")
    outcome(ray.ObjectRef, "text")
    outcome(ray.ObjectRef)


@program
def copies_of_references():
    ref = ray.put(5)
    outcome(lambda: copy.copy(ref) == ref)
    outcome(lambda: copy.deepcopy(ref) == ref)
    outcome(lambda: ray.get(copy.deepcopy({"k": [ref]})["k"][0]))


@program
def pickles_of_references():
    ref = ray.put(5)
    outcome(lambda: ray.get(pickle.loads(pickle.dumps(ref))))
    outcome(lambda: ray.get(ray.cloudpickle.loads(ray.cloudpickle.dumps(ref))))
    outcome(lambda: ray.cloudpickle.loads(ray.cloudpickle.dumps([ref]))[0] == ref)
    outcome(lambda: ray.get(ray.cloudpickle.loads(ray.cloudpickle.dumps(lambda: ref))()))


@program
def pickled_references_keep_the_value():
    @ray.remote
    def read(data):
        return ray.get(ray.cloudpickle.loads(data))

    ref = ray.put("kept")
    data = ray.cloudpickle.dumps(ref)
    outcome(lambda: ray.get(read.remote(data)))
    del ref
    outcome(lambda: ray.get(ray.cloudpickle.loads(data)))


@program
def ids_of_the_context():
    context = ray.get_runtime_context()
    for name in ["get_job_id", "get_node_id", "get_worker_id", "get_task_id", "get_actor_id"]:
        value = getattr(context, name)()
        say(name, type(value).__name__)


@program
def classes_of_ids():
    for name in [
        "ActorID",
        "JobID",
        "NodeID",
        "TaskID",
        "WorkerID",
        "UniqueID",
        "PlacementGroupID",
        "FunctionID",
        "ActorClassID",
    ]:
        kind = getattr(ray, name)
        outcome(lambda: (name, kind.nil().is_nil(), len(kind.nil().hex()) == 2 * kind.size()))  # noqa: B023


@program
def ids_of_bytes_and_digits():
    for kind in [
        ray.NodeID,
        ray.JobID,
        ray.WorkerID,
        ray.PlacementGroupID,
        ray.ActorID,
        ray.TaskID,
    ]:
        data = bytes(range(1, kind.size() + 1))
        outcome(lambda: (kind(data) == kind.from_hex(data.hex()), kind(data).binary() == data))  # noqa: B023
        outcome(
            lambda: (
                repr(kind(data)) == f"{kind.__name__}({data.hex()})",
                str(kind(data)) == repr(kind(data)),
            )
        )  # noqa: B023
        outcome(lambda: (hash(kind(data)) == hash(kind(data)), kind(data) == kind.nil()))  # noqa: B023
        outcome(lambda: pickle.loads(pickle.dumps(kind(data))) == kind(data))  # noqa: B023


@program
def wrong_ids():
    for value in [b"short", "text", 5, None]:
        outcome(ray.NodeID, value)
        outcome(ray.JobID, value)


@program
def lengths_of_ids():
    say(len(ray.put(1).binary()), [k.size() for k in (ray.TaskID, ray.ActorID, ray.JobID)])
    say(ray.JobID.from_int(5).hex())


@program
def job_ids_are_numbers():
    say(ray.JobID.from_int(5).int(), ray.JobID.from_int(258).int())
    say(len(ray.JobID.from_int(5).hex()))
    say(ray.JobID.from_int(1) == ray.JobID.from_int(1))


@program
def random_ids():
    for kind in [ray.NodeID, ray.WorkerID, ray.UniqueID]:
        a, b = kind.from_random(), kind.from_random()
        say(kind.__name__, a == b, len(a.binary()) == kind.size(), type(a) is kind)


@program
def ids_are_of_different_classes():
    data = b"x" * 28
    say(ray.NodeID(data) == ray.UniqueID(data), ray.NodeID(data) == data)
    say(issubclass(ray.NodeID, ray.UniqueID), issubclass(ray.JobID, ray.UniqueID))


@program
def calling_when_ready():
    import threading

    seen, done = [], threading.Event()

    def note(value):
        seen.append(value)
        done.set()

    ref = one.remote()
    outcome(lambda: ref._on_completed(note))
    say(done.wait(20), seen)


@program
def references_are_not_iterated():
    ref = ray.put([1, 2])
    outcome(list, ref)
    outcome(len, ref)
    outcome(lambda: ref + 1)
    outcome(lambda: ref())


@program
def attributes_can_be_set():
    ref = ray.put(1)

    def mark():
        ref.mark = 5
        return ref.mark

    outcome(mark)


if __name__ == "__main__":
    main()
