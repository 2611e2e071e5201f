# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where objects lie and how large they are, without fetching them."""

from __future__ import annotations

from typing import Any

import sheaf
from sheaf import _core, ids


def get_object_locations(
    obj_refs: list[_core.ObjectRef[Any]], timeout_ms: int = -1
) -> dict[_core.ObjectRef[Any], dict[str, Any]]:
    """Says where objects lie, once they are ready.

    Args:
        obj_refs: the references.
        timeout_ms: how long to wait for those that are not ready, in milliseconds; -1: for ever.

    Returns:
        By reference a dict: `node_ids`, hexadecimal, of the nodes with a copy in memory or on disk,
        as far as this process knows (its owner knows all); `object_size` in bytes, None if it is
        not known; `did_spill`, whether the copy on this node has gone to disk, None if there is
        none. Of an error `node_ids` is empty.

    Raises:
        TypeError: an item is no ObjectRef.
        GetTimeoutError: some were not ready in time.
    """
    refs = list(obj_refs)
    if refs:
        _, late = sheaf.wait(
            list(dict.fromkeys(refs)),
            num_returns=len(set(refs)),
            timeout=None if timeout_ms < 0 else timeout_ms / 1000,
            fetch_local=False,
        )
        if late:
            raise sheaf.exceptions.GetTimeoutError(
                f"{len(late)} of {len(set(refs))} objects were not ready within {timeout_ms} ms"
            )
    return get_local_object_locations(refs)


def get_local_object_locations(
    obj_refs: list[_core.ObjectRef[Any]],
) -> dict[_core.ObjectRef[Any], dict[str, Any]]:
    """The same at once, of what this process knows now: objects that are not ready lie nowhere.

    Args:
        obj_refs: the references.

    Returns:
        As of get_object_locations.

    Raises:
        TypeError: an item is no ObjectRef.
    """
    here = sheaf.get_runtime_context().get_node_id()
    rows: dict[_core.ObjectRef[Any], dict[str, Any]] = {}
    refs = list(obj_refs)
    for ref, (_, numbers, size, in_reach) in zip(refs, _core.object_places(refs), strict=True):
        nodes = [ids.node_id(number) for number in numbers]
        rows[ref] = {
            "node_ids": nodes,
            "object_size": size or None,
            "did_spill": (not in_reach) if here in nodes else None,
        }
    return rows


def give_up(
    obj_refs: list[_core.ObjectRef[Any]], though_used: bool = False
) -> list[tuple[bool, str] | None]:
    """Frees the bytes of objects on all nodes, though they are referred to: whoever reads one next
    has it made again by the task that made it, which takes none of its retries. For caches.

    Args:
        obj_refs: references to results of tasks which this process submitted.
        though_used: also of those that calls use, or that are inside other values. Calls that wait
            for one wait until it has been made again.

    Returns:
        For each None, or why its bytes stay: whether they may go later (it is being made, or is
        used), and words. Results of actors and what was put could not be made again.

    Raises:
        TypeError: an item is no ObjectRef.
    """
    return _core.give_up(list(obj_refs), though_used)
