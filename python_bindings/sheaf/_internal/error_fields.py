# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How programs make exceptions and what they read of them, where it is not one text alone. Bases of
classes in sheaf.exceptions."""

from __future__ import annotations

from typing import Any


class Message(Exception):
    """Has `message`.

    Args:
        message: what is said.
    """

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message


class ErrorMessage(Exception):
    """Has `error_message`.

    Args:
        error_message: what is said.
    """

    def __init__(self, error_message: str):
        super().__init__(error_message)
        self.error_message = error_message


class RpcMessage(Exception):
    """Has `message` and `rpc_code`.

    Args:
        message: what is said.
        rpc_code: a number of gRPC, or None.
    """

    def __init__(self, message: str, rpc_code: Any = None):
        super().__init__(message, rpc_code)
        self.message = message
        self.rpc_code = rpc_code

    def __str__(self) -> str:
        return self.message


class Inner(Exception):
    """Has `client_exc`, and where that was raised.

    Args:
        client_exc: the exception or the words that it is about.
        traceback_str: its traceback, or None.
    """

    def __init__(self, client_exc: Any, traceback_str: str | None = None):
        super().__init__(client_exc)
        self.client_exc = client_exc
        self.traceback_str = traceback_str

    def __str__(self) -> str:
        if isinstance(self.client_exc, str):
            return self.client_exc
        return f"System error: {self.client_exc}" + (
            f"\ntraceback: {self.traceback_str}" if self.traceback_str else ""
        )


class OfObject(Exception):
    """Is about an object. The runtime gives its sentence alone; programs give the id, the owner and
    the place where the reference was made.

    Args:
        object_ref_hex: the id of the object, or the sentence.
        owner_address: of the process that owns it, or None.
        call_site: where the reference was made, or "".
    """

    def __init__(self, object_ref_hex: str, owner_address: Any = None, call_site: str = ""):
        super().__init__(object_ref_hex, owner_address, call_site)
        self.object_ref_hex = object_ref_hex
        self.owner_address = owner_address
        self.call_site = call_site

    def __str__(self) -> str:
        if " " in self.object_ref_hex:
            return self.object_ref_hex
        made = f" (made at {self.call_site})" if self.call_site else ""
        return f"{type(self).__name__}: the object {self.object_ref_hex}{made} is not to be had"


class OfLostObject(OfObject):
    """Is about an object that cannot be made again, for a reason.

    Args:
        object_ref_hex: the id of the object, or the sentence.
        reason: a number, or None.
        reason_message: the reason in words, or None.
        owner_address: of the process that owned it, or None.
        call_site: where the reference was made, or "".
    """

    REASON_MESSAGES: dict[Any, str] = {}

    def __init__(
        self,
        object_ref_hex: str,
        reason: Any = None,
        reason_message: str | None = None,
        owner_address: Any = None,
        call_site: str = "",
    ):
        super().__init__(object_ref_hex, owner_address, call_site)
        self.args = (object_ref_hex, reason, reason_message, owner_address, call_site)
        self.reason = reason
        self.reason_message = reason_message

    def __str__(self) -> str:
        return super().__str__() + (f": {self.reason_message}" if self.reason_message else "")


class OriginalTrace(Exception):
    """Has the words of an exception that could not be brought here.

    Args:
        original_stack_trace: these words.
    """

    def __init__(self, original_stack_trace: str):
        super().__init__(original_stack_trace)


class OfCall(Exception):
    """Is about a call that was cancelled.

    Args:
        task_id: of the call, or None.
        error_message: what is said, or None.
    """

    def __init__(self, task_id: Any = None, error_message: str | None = None):
        super().__init__(task_id, error_message)
        self.task_id = task_id
        self.error_message = error_message

    def __str__(self) -> str:
        if self.error_message:
            return self.error_message
        return f"Task: {self.task_id} was cancelled" if self.task_id else ""


class OfSetup(Exception):
    """Has `error_message`: what kept a runtime environment from being made.

    Args:
        error_message: this, or None.
    """

    def __init__(self, error_message: str | None = None):
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        said = f"\n{self.error_message}" if self.error_message else ""
        return f"Failed to set up runtime environment.{said}"


class OfActor(Exception):
    """Is about an actor.

    Args:
        actor_id: its id, where it is known.
        error_msg: what is said.
        actor_init_failed: whether its constructor raised, which is `cause` then.
        preempted: whether its node was taken away.
    """

    actor_id: str | None
    actor_init_failed: bool
    preempted: bool
    BASE_ERROR_MSG = "The actor experienced an error before finishing this task."

    def __init__(
        self,
        actor_id: str | None = None,
        error_msg: str = BASE_ERROR_MSG,
        actor_init_failed: bool = False,
        preempted: bool = False,
    ):
        super().__init__(error_msg)
        self.actor_id = actor_id
        self.error_msg = error_msg
        self.actor_init_failed = actor_init_failed
        self.preempted = preempted
        self.cause: BaseException | None = None  # Not __cause__: the message has its traceback.

    def __str__(self) -> str:
        return self.error_msg

    def __reduce__(self) -> Any:
        return rebuild_actor_error, (type(self), self.error_msg, self.cause, self.__dict__)


def rebuild_actor_error(
    kind: type[Any],
    message: str,
    cause: BaseException | None = None,
    state: dict[str, Any] | None = None,
) -> Any:
    """An error of an actor, in the runtime's words; `cause`: what its constructor raised."""
    error = kind.__new__(kind, message)
    OfActor.__init__(error, None, message, cause is not None)
    error.cause = cause
    error.__dict__.update(state or {})
    return error
