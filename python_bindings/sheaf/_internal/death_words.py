# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What the errors of dead actors say: the runtime's own words, and those of Ray that programs look
for."""

from __future__ import annotations

import re

_ENDED = re.compile(r"\(([0-9a-f]{32})\) (?:was ended|is dead): (.*)", re.DOTALL)
_NAMED = re.compile(r", actor_id=([0-9a-f]{32}), ")  # In the head of a remote traceback.
_ARGUMENT = "an argument of the constructor failed: "
_OF_A_DEAD_NODE = "was on a node that died"
_BECAUSE = (  # How a reason of the runtime begins, and what Ray says of it.
    ("kill was called", "it was killed by `ray.kill`"),
    ("it asked for its end", "its worker process has died: exit_actor() is called, or sys.exit(0)"),
    ("no handle of it is left", "all references to the actor were removed"),
    ("its process ", "its worker process has died"),
)


def is_of_argument(message: str) -> bool:
    """Whether the actor died because an argument of its constructor has no value."""
    return message.startswith(_ARGUMENT)


def of_actor(message: str, in_creation: bool) -> tuple[str, str | None]:
    """The text of an ActorDiedError and the id of the actor, if `message` names it. `in_creation`:
    the actor has never begun."""
    ended = _ENDED.search(message)
    node_died = ended is not None and _OF_A_DEAD_NODE in ended[2]
    found = ended or _NAMED.search(message)
    if in_creation:
        message = f"The actor died because of an error raised in its creation task, {message}"
    elif node_died:
        message = f"The actor died because its node has died. Node of it: {message}"
    elif ended:
        because = next((ray for own, ray in _BECAUSE if ended[2].startswith(own)), ended[2])
        message = (
            f"The actor died unexpectedly before finishing this task. The actor is dead because "
            f"{because}.\n{message}"
        )
    return message, found[1] if found else None
