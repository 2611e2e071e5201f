# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Actors that are found by name, whatever language made them."""

from __future__ import annotations

from sheaf import _core, options
from sheaf.actor import ActorHandle

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """Finds an actor by its name, whatever process and language made it.

    Args:
        name: what the actor's option `name` was.
        namespace: where it is looked for; None: in the namespace of this job.

    Returns:
        Its handle, which keeps the actor alive as every handle does.

    Raises:
        ValueError: there is no such actor, or the name is empty or None.
        TypeError: a name is no str.
        RayError: the cluster did not answer.
    """
    if not name:
        raise ValueError(f"Please supply a non-empty value to get_actor: name={name!r}")
    options.check("actor", {"name": name, "namespace": namespace})
    found = _core.get_actor(name, namespace or "")
    if found is None:
        where = f"the namespace '{namespace}'" if namespace else "this namespace"
        raise ValueError(
            f"Failed to look up actor with name '{name}' in {where}: it was not made, has ended, "
            "or its handles are gone"
        )
    ref, extra, *described = found
    if extra[:1] != b"\x80":  # No pickle: made by C++, or one of C++.
        from sheaf import cross_language  # For programs that use it.

        return cross_language.handle_of(ref, *described)
    import pickle  # `import sheaf` does without it.

    return ActorHandle(ref, pickle.loads(extra)[3])
