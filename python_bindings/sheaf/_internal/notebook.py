# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""How references, actors and the session look in notebooks."""

from __future__ import annotations

import html

from sheaf import _core

TYPE_CHECKING = False  # Importing typing takes longer than all else here.
if TYPE_CHECKING:
    from typing import Any


def table(title: str, rows: dict[str, Any]) -> str:
    """A small table of names and values."""
    cells = "".join(
        f"<tr><td style='text-align:left'><b>{html.escape(name)}</b></td><td "
        f"style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<div><b>{html.escape(title)}</b><table>{cells}</table></div>"


def reference(ref: Any) -> str:
    """Of an ObjectRef."""
    try:
        state = "ready" if _core.is_ready(ref) else "pending"
    except Exception:
        state = "of a session that has ended"
    return table("ObjectRef", {"id": ref.hex(), "state": state})


def actor(class_name: str, actor_id: str) -> str:
    """Of an actor's handle."""
    row: dict[str, Any] = {}
    if _core.is_initialized():
        row = next(iter(_core.actors([("actor_id", actor_id)])), {})
    shown = {
        "state": row.get("state", "unknown"),
        "process": row.get("pid") or "-",
        "name": row.get("name") or "-",
    }
    return table(f"Actor {class_name}", {"id": actor_id, **shown})


def session(address: str, nodes: int, amounts: dict[str, float], free: dict[str, float]) -> str:
    """Of what init gives: how many nodes there are, and their resources, of which some are free."""
    resources = {
        name: f"{free.get(name, 0):g} of {amount:g} free"
        for name, amount in amounts.items()
        if not name.startswith("node:")
    }
    return table("Sheaf", {"session": address, "nodes": nodes, **resources})
