# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as exceptions: the hierarchy and the names that programs written for Ray expect.

Everything derives from RayError. A task that raised gives a RayTaskError that is also an instance
of what it raised.
"""

from __future__ import annotations

import enum
import pickle
import re
import types
from typing import Any

from sheaf import _core
from sheaf._internal import death_words
from sheaf._internal import error_fields as fields


class Kind(enum.IntEnum):
    """Why an object has no value; the numbers of base/error_kind.h."""

    NONE = 0
    TASK_FAILED = 1
    TASK_CANCELLED = 2
    WORKER_CRASHED = 3
    ACTOR_DIED = 4
    ACTOR_UNAVAILABLE = 5
    ACTOR_UNSCHEDULABLE = 6
    TASK_UNSCHEDULABLE = 7
    OBJECT_LOST = 8
    OWNER_DIED = 9
    OBJECT_STORE_FULL = 10
    OUT_OF_DISK = 11
    OUT_OF_MEMORY = 12
    TIMEOUT = 13
    ENVIRONMENT_FAILED = 14
    GROUP_REMOVED = 15
    PENDING_CALLS_LIMIT = 16
    NODE_DIED = 17
    RAYLET_DIED = 18
    RECONSTRUCTION_FAILED = 19
    STREAM_REPLAY = 20
    INVALID_ARGUMENT = 21
    ACTOR_NAME_TAKEN = 22
    NOT_FOUND = 23
    GCS_STORAGE_FULL = 24
    SYSTEM = 25
    ACTOR_GROUP_REMOVED = 26


_LONGEST_HEAD = 1000  # Characters of the line that says where a task ran.


class ActorExit(BaseException):
    """Raised by exit_actor: ends the actor, not only the call. Not an error: nobody catches it."""


class RayError(Exception):
    """The base of all errors that Sheaf raises about tasks, actors and objects."""


class RayTaskError(RayError):
    """A task or an actor's method raised. `cause` is what it raised; str() is the remote
    traceback; function_name, proctitle, pid and ip say where it ran."""

    def __init__(
        self,
        function_name: str = "",
        traceback_str: str = "",
        cause: BaseException | None = None,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
    ):
        BaseException.__init__(
            self, function_name, traceback_str, cause
        )  # super() may be the cause's class, with arguments of its own.
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.proctitle = proctitle or f"ray::{function_name}"
        self.pid = pid or 0
        where = None if ip else re.search(r"\(pid=\d+, ip=([^,)]*)", traceback_str[:_LONGEST_HEAD])
        self.ip = ip or (where[1] if where else "")
        self.actor_repr = actor_repr
        self._actor_id = actor_id

    def __str__(self) -> str:
        return self.traceback_str

    def __reduce__(self) -> Any:
        return rebuild_task_error, (self.function_name, self.traceback_str, self.cause, self.pid)

    def make_dual_exception_instance(self) -> RayTaskError:
        """The same as as_instanceof_cause."""
        return self.as_instanceof_cause()

    def as_instanceof_cause(self) -> RayTaskError:
        """The same error as an instance of the cause's class too, where that class allows it."""
        return rebuild_task_error(self.function_name, self.traceback_str, self.cause, self.pid)


class TaskCancelledError(fields.OfCall, RayError):
    """The call was cancelled."""


class CrossLanguageError(RayError):
    """A function of another language failed.

    language: "c++"; function_name: what was called; cause_type: the type of what it threw
    ("std::out_of_range"); cause_message: its text.
    """

    def __init__(
        self,
        message: str = "",
        language: str = "",
        function_name: str = "",
        cause_type: str = "",
        cause_message: str = "",
    ):
        super().__init__(message)
        self.language = language
        self.function_name = function_name
        self.cause_type = cause_type
        self.cause_message = cause_message

    def __reduce__(self) -> Any:
        return type(self), (
            str(self),
            self.language,
            self.function_name,
            self.cause_type,
            self.cause_message,
        )


class WorkerCrashedError(RayError):
    """The process that ran the task ended before the task did."""


class LocalRayletDiedError(RayError):
    """The node that this process belongs to has ended."""


class NodeDiedError(fields.Message, RayError):
    """The node that ran the task has died."""


class UserCodeException(RayError):
    """User code that Sheaf called on the side has failed."""


class AuthenticationError(fields.Message, RayError):
    """The cluster does not accept this process."""


class RpcError(fields.RpcMessage, RayError):
    """A message between nodes failed."""


class RuntimeEnvSetupError(fields.OfSetup, RayError):
    """The runtime environment of a task or actor could not be made."""


class ObjectStoreFullError(RayError):
    """The object store has no room, and nothing can leave it."""


class OutOfDiskError(RayError):
    """The disk that objects are moved to is full."""


class OutOfMemoryError(fields.Message, RayError):
    """The worker was ended because the machine ran out of memory."""


class GetTimeoutError(RayError, TimeoutError):
    """A wait with a timeout was over before the value was there."""


class PlasmaObjectNotAvailable(RayError):
    """An object is not in the store."""


class AsyncioActorExit(RayError):
    """exit_actor was called in an async actor."""


class PendingCallsLimitExceeded(RayError):
    """More calls are pending than max_pending_calls allows; or calls of 56 MiB, and the actor has
    not started for 30 s, or (for a caller that is itself an actor or a task) has answered none for
    30 s. Make fewer calls at once, wait for some of them, or pass large values by `put`."""


class TaskPlacementGroupRemoved(RayError):
    """The placement group of the task was removed."""


class ActorPlacementGroupRemoved(RayError):
    """The placement group of the actor was removed before the actor had started."""


class TaskUnschedulableError(fields.ErrorMessage, RayError):
    """No node can run the task."""


class ActorUnschedulableError(fields.ErrorMessage, RayError):
    """No node can run the actor."""


class ActorAlreadyExistsError(fields.ErrorMessage, ValueError, RayError):
    """The name of the actor is taken."""


class ActorHandleNotFoundError(fields.ErrorMessage, ValueError, RayError):
    """There is no such actor."""


class ObjectRefStreamEndOfStreamError(RayError):
    """The generator has no more items."""


class UnserializableException(fields.OriginalTrace, RayError):
    """An exception could not be brought to this process."""


class OufOfBandObjectRefSerializationException(RayError):
    """A reference was pickled outside of arguments, results and put values."""


class RayActorError(fields.OfActor, RayError):
    """The actor cannot answer: it died, or is not reachable now.

    cause: what its constructor raised, if that is why, as RayTaskError and as itself (of more than
    a megabyte: a RayTaskError with the remote traceback alone).
    """


class ActorDiedError(RayActorError):
    """The actor is dead for good."""

    BASE_ERROR_MSG = "The actor died unexpectedly before finishing this task."

    def __init__(self, cause: BaseException | str | None = None):
        said = self.BASE_ERROR_MSG if cause is None else str(cause)
        super().__init__(None, said, isinstance(cause, RayTaskError))
        self.cause = cause if isinstance(cause, BaseException) else None

    @staticmethod
    def from_task_error(task_error: RayTaskError) -> ActorDiedError:
        """The error of an actor whose constructor raised this."""
        return ActorDiedError(task_error)


class ActorUnavailableError(RayActorError):
    """The actor restarts or cannot be reached now; the call ran, or did not."""

    def __init__(self, error_message: str, actor_id: bytes | str | None = None):
        super().__init__(actor_id.hex() if isinstance(actor_id, bytes) else actor_id, error_message)


class ObjectLostError(fields.OfObject, RayError):
    """All copies of the object are gone."""


class ObjectFetchTimedOutError(ObjectLostError):
    """A copy of the object could not be fetched in time."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The object was freed while it was referenced."""


class ObjectFreedError(ObjectLostError):
    """The object was freed on request."""


class OwnerDiedError(ObjectLostError):
    """The process that made the object has ended."""


class ObjectReconstructionFailedError(fields.OfLostObject, ObjectLostError):
    """The object was lost, and its task cannot be run again."""


class RaySystemError(fields.Inner, RayError):
    """Something of Sheaf's own failed."""


class RayChannelError(RaySystemError):
    """A channel failed."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """A channel's peer did not answer in time."""


class RayCgraphCapacityExceeded(RaySystemError):
    """Too many executions of a compiled graph are under way."""


class RayDirectTransportError(RaySystemError):
    """A tensor could not be moved directly."""


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    """A generator that ran again gave other items."""


_CLASSES: dict[int, type[RayError]] = {
    Kind.TASK_CANCELLED: TaskCancelledError,
    Kind.WORKER_CRASHED: WorkerCrashedError,
    Kind.ACTOR_DIED: ActorDiedError,
    Kind.ACTOR_UNAVAILABLE: ActorUnavailableError,
    Kind.ACTOR_UNSCHEDULABLE: ActorUnschedulableError,
    Kind.TASK_UNSCHEDULABLE: TaskUnschedulableError,
    Kind.OBJECT_LOST: ObjectLostError,
    Kind.OWNER_DIED: OwnerDiedError,
    Kind.OBJECT_STORE_FULL: ObjectStoreFullError,
    Kind.OUT_OF_DISK: OutOfDiskError,
    Kind.OUT_OF_MEMORY: OutOfMemoryError,
    Kind.TIMEOUT: GetTimeoutError,
    Kind.ENVIRONMENT_FAILED: RuntimeEnvSetupError,
    Kind.GROUP_REMOVED: TaskPlacementGroupRemoved,
    Kind.ACTOR_GROUP_REMOVED: ActorPlacementGroupRemoved,
    Kind.PENDING_CALLS_LIMIT: PendingCallsLimitExceeded,
    Kind.NODE_DIED: NodeDiedError,
    Kind.RAYLET_DIED: LocalRayletDiedError,
    Kind.RECONSTRUCTION_FAILED: ObjectReconstructionFailedError,
    Kind.STREAM_REPLAY: StreamingGeneratorReplayInconsistentError,
    Kind.ACTOR_NAME_TAKEN: ActorAlreadyExistsError,
    Kind.NOT_FOUND: ActorHandleNotFoundError,
    Kind.SYSTEM: RaySystemError,
}

# absl::StatusCode: what a call of this process itself met.
(
    _CANCELLED,
    _INVALID_ARGUMENT,
    _DEADLINE_EXCEEDED,
    _NOT_FOUND,
    _ALREADY_EXISTS,
    _RESOURCE_EXHAUSTED,
    _ABORTED,
) = 1, 3, 4, 5, 6, 8, 10


def from_status(code: int, resource: int, message: str) -> Exception:
    """The exception for a status of the runtime; `resource` is the Kind that an exhausted resource
    means here."""
    if code == _DEADLINE_EXCEEDED:
        return GetTimeoutError(message)
    if code == _CANCELLED:
        return TaskCancelledError(None, message)
    if code == _INVALID_ARGUMENT:
        return ValueError(message)
    if code == _NOT_FOUND:
        return ValueError(message)
    if code == _ALREADY_EXISTS:
        return ActorAlreadyExistsError(message)
    if code == _RESOURCE_EXHAUSTED:
        return _CLASSES.get(resource, RaySystemError)(message)
    if code == _ABORTED:
        return LocalRayletDiedError(message)
    return RaySystemError(message)


def from_error(kind: int, message: str, payload: bytes) -> Exception:
    """The exception for an object without a value; `payload` is what worker_errors.describe_failure
    made of the cause."""
    if kind == Kind.TASK_FAILED or (kind == Kind.TASK_CANCELLED and payload):
        return _task_error(message, payload)
    if kind == Kind.INVALID_ARGUMENT:
        return ValueError(message)
    if kind == Kind.WORKER_CRASHED:
        return WorkerCrashedError(
            f"The worker died unexpectedly while executing this task: {message}"
        )
    if kind == Kind.ACTOR_DIED:
        return _actor_died(message, payload)
    if kind == Kind.TASK_CANCELLED:
        return TaskCancelledError(None, message)
    if kind in (Kind.TASK_UNSCHEDULABLE, Kind.ACTOR_UNSCHEDULABLE):
        whose = "task" if kind == Kind.TASK_UNSCHEDULABLE else "actor"
        message = f"The {whose} is not schedulable: {message}"
    return _CLASSES.get(kind, RaySystemError)(message)


def _actor_died(message: str, payload: bytes) -> ActorDiedError:
    cause: Any = _task_error(message, payload) if payload else _constructor_error(message)
    if cause is None and death_words.is_of_argument(message):
        cause = RayTaskError("", message)
    text, actor = death_words.of_actor(message, cause is not None)
    error = fields.rebuild_actor_error(ActorDiedError, text, cause)
    error.actor_id = actor
    return error


def _constructor_error(message: str) -> RayTaskError | None:
    """What the constructor raised, of which only the words came here (worker/owner/task_table.h,
    ConstructorFailed)."""
    _, found, text = message.partition(" failed: ray::")
    if not found or "the constructor of the actor " not in message:
        return None
    head = re.match(r"(.*)\(\) \(pid=(\d+), ip=([^,)]*)", text)
    name, pid, ip = head.groups() if head else ("", "0", "")
    return RayTaskError(name, "ray::" + text, None, pid=int(pid), ip=ip)


def _task_error(message: str, payload: bytes) -> Exception:
    if payload[:1] != b"\x80":  # No pickle: a function of another language.
        try:
            return CrossLanguageError(message, *_core.decode_plain(payload))
        except (TypeError, ValueError):  # Of another version.
            return CrossLanguageError(message)
    function_name, traceback_str, cause_bytes, cause_words, pid = pickle.loads(payload)
    if message.endswith(traceback_str) and message != traceback_str:
        # Before it stand the calls of which it was an argument, which ran nowhere.
        where = re.search(r"\(pid=\d+, ip=[^,)]*", traceback_str[:_LONGEST_HEAD])
        head = rf"\1 {where[0] if where else f'(pid={pid}'})\n"
        traceback_str = re.sub(r"(ray::[^\n]*\(\))\n(?=  At least one )", head, message)
    cause: BaseException
    if cause_bytes is None:
        return rebuild_task_error(
            function_name, traceback_str, UnserializableException(cause_words), pid
        )
    try:
        cause = pickle.loads(cause_bytes)
    except Exception as error:
        cause = UnserializableException(
            f"{cause_words} (it cannot be rebuilt here: {type(error).__name__}: {error})"
        )
    return rebuild_task_error(function_name, traceback_str, cause, pid)


def rebuild_task_error(
    function_name: str, traceback_str: str, cause: BaseException | None, pid: int
) -> RayTaskError:
    """A RayTaskError that is an instance of the cause's class too, where that class allows it."""
    kind = (
        RayTaskError if cause is None or isinstance(cause, RayTaskError) else _class_of_both(cause)
    )
    error = _new(kind, cause)
    RayTaskError.__init__(error, function_name, traceback_str, cause, pid=pid)
    if cause is not None and kind is not RayTaskError:
        error.args = cause.args
        for name, value in getattr(cause, "__dict__", {}).items():
            error.__dict__.setdefault(name, value)
        _copy_slots(cause, error)
    return error


def _new(kind: type[RayTaskError], cause: BaseException | None) -> RayTaskError:
    if kind is RayTaskError or cause is None:
        return RayTaskError.__new__(kind)
    # Some classes, as MemoryError, want their own __new__; groups want what they hold.
    held = (
        (cause.message, cause.exceptions)
        if hasattr(cause, "exceptions") and hasattr(cause, "message")
        else ()
    )
    error: RayTaskError = type(cause).__new__(kind, *held)
    return error


def _copy_slots(cause: BaseException, error: BaseException) -> None:
    """What classes keep beside __dict__: errno of OSError, value of StopIteration, and
    __slots__."""
    for kind in type(cause).__mro__:
        if kind in (Exception, BaseException, object):
            continue
        for name, descriptor in vars(kind).items():
            if (
                isinstance(descriptor, (types.MemberDescriptorType, types.GetSetDescriptorType))
                and name[:2] != "__"
            ):
                try:
                    setattr(error, name, getattr(cause, name))
                except (AttributeError, TypeError):
                    pass  # Not set, or not to be set.


_both: dict[type[BaseException], type[RayTaskError]] = {}


def _class_of_both(error: BaseException) -> type[RayTaskError]:
    cause = type(error)
    known = _both.get(cause)
    if known is None:
        ours = {
            name: getattr(RayTaskError, name) for name in ("__init__", "__reduce__", "__str__")
        } | {"__module__": __name__}
        # If the layout, the metaclass or the constructor of the cause's class does not allow it.
        known = RayTaskError
        for bases in (
            (RayTaskError, cause),
            (cause, RayTaskError),
        ):  # Some, as MemoryError, must come first.
            try:
                both = type(f"RayTaskError({cause.__name__})", bases, ours)
                _new(both, error)
            except Exception:
                continue
            known = both
            break
        _both[cause] = known
    return known
