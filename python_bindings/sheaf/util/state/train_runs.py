# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Listings of the training runs of sheaf.train."""

from __future__ import annotations

import json
import time

from sheaf import _core
from sheaf.util import train_run_store as store
from sheaf.util.state.rows import Row, chosen, of_a_session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_COLUMNS = (
    "run_id",
    "name",
    "state",
    "job_id",
    "driver",
    "workers",
    "attempts",
    "steps",
    "metrics",
    "checkpoint",
    "start_time_ms",
    "end_time_ms",
    "path",
    "message",
)
_UNKNOWN: dict[str, Any] = {
    "name": "",
    "state": "UNKNOWN",
    "job": 0,
    "driver": "",
    "workers": 0,
    "attempts": 0,
    "steps": 0,
    "metrics": {},
    "checkpoint": None,
    "start_ms": 0,
    "end_ms": None,
    "reported_ms": None,
    "path": "",
    "message": "its record cannot be read",
}
_DIED, _LEFT = "its driver died", "its driver has ended"
_SILENT = ", and has not said how the run ended"


@of_a_session
def list_train_runs(
    address: str | None = None,
    filters: Any = None,
    limit: int = 100,
    timeout: int = 30,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[Row]:
    """Lists the training runs of sheaf.train, the newest first. The cluster keeps the last 1,000.

    Args:
        address: without effect: it is this process's cluster.
        filters: (field, "=" or "!=", value) each; all must hold.
        limit: how many rows at most.
        detail: without effect.
        timeout: without effect.
        raise_on_missing_output: without effect.

    Returns:
        Rows of run_id, name, state ("RUNNING", "FINISHED", "ERRORED", "ABORTED": interrupted or its
        driver is gone, or "UNKNOWN": its record cannot be read), job_id, driver (the process that
        called fit, "NODE.NUMBER"), workers, attempts (how often their group was formed), steps,
        metrics (of the last one), checkpoint (the path of the newest, or None), start_time_ms,
        end_time_ms (None: it runs; where its driver is gone, when that was, or when the run was
        heard last), path and message.

    Raises:
        ValueError: a filter has another operator.
        RayStateApiException: a filter names a field that there is none of.
        RayError: the cluster did not answer.
    """
    keys = sorted(_core.key_list(store.SPACE, store.RUN), reverse=True)
    if not filters:
        keys = keys[: max(0, limit)]
    records = {key.removeprefix(store.RUN): _value(key) for key in keys}
    gone = _gone_drivers([record for record in records.values() if record])
    rows = [_row(run_id, record, gone) for run_id, record in records.items() if record]
    return chosen(rows, filters, limit, _COLUMNS)


@of_a_session
def get_train_run(
    id: str, address: Any = None, timeout: int = 30, _explain: bool = False
) -> Row | None:
    """Finds a training run by its id.

    Args:
        id: as list_train_runs has it.
        address: without effect.
        timeout: without effect.

    Returns:
        Its row in list_train_runs, or None. It also has ranks (rank, process, pid and actor_id
        each, of the last group; the first 512), formed (one for each time that the group was
        formed, the last 50: attempt, start_ms, workers, kept, from_step, and why the one before was
        given up), events (the last 100: time_ms, step, text) and series (at most 100 points of up
        to 8 metrics: steps, time_ms, metrics).

    Raises:
        RayError: the cluster did not answer.
    """
    record = _value(store.RUN + id)
    if record is None:
        return None
    row = _row(id, record, _gone_drivers([record]))
    history = _value(store.HISTORY + id) or {}
    row["ranks"] = (_value(store.GROUP + id) or {}).get("ranks", [])
    row["formed"], row["events"] = history.get("attempts", []), history.get("events", [])
    row["series"] = history.get("series", {})
    return row


def _value(key: str) -> dict[str, Any] | None:
    """None: there is no such key, or it went meanwhile. What is no record of ours is one of which
    nothing is known."""
    value = _core.key_get(store.SPACE, key)
    if value is None:
        return None
    try:
        record = json.loads(value)
    except ValueError:
        record = {}
    known = record if isinstance(record, dict) else {}
    return {**_UNKNOWN, **known} if key.startswith(store.RUN) else known


def _gone_drivers(records: list[dict[str, Any]]) -> dict[str, tuple[int, bool]]:
    """The drivers of runs that have not ended which are no process any more: when they ended, in
    seconds since 1970 (0: not known), and whether they are known to have died. A run may also be
    within an actor, as those of trials are."""
    drivers = {record["driver"] for record in records if record["state"] == "RUNNING"}
    if not drivers:
        return {}
    alive, all_answered, ended = _core.processes_if_all()
    gone = drivers.difference(alive) if all_answered else ()
    return {driver: ended.get(driver, (0, False)) for driver in gone}


def _abort(record: dict[str, Any], ended: int, died: bool) -> tuple[int, str]:
    """When a run was over that did not say so itself, in ms, and the words of it."""
    what = (_DIED if died else _LEFT) + _SILENT
    if ended:
        return ended * 1000, f"{what}, at {_local(ended)}"
    times = (record["reported_ms"], record["start_ms"])  # Anybody may have written the record.
    heard = max((time_ms for time_ms in times if isinstance(time_ms, int)), default=0)
    return heard, f"{what}; it was heard last at {_local(heard // 1000)}"


def _local(unix_s: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))
    except (OSError, OverflowError, ValueError):
        return "?"


def _row(run_id: str, record: dict[str, Any], gone: dict[str, tuple[int, bool]]) -> Row:
    lost = record["state"] == "RUNNING" and record["driver"] in gone
    end_ms, message = record["end_ms"], record["message"]
    if lost:
        end_ms, message = _abort(record, *gone[record["driver"]])
    return Row(
        run_id=run_id,
        name=record["name"],
        state="ABORTED" if lost else record["state"],
        job_id=f"{record['job']:08x}",
        driver=record["driver"],
        workers=record["workers"],
        attempts=record["attempts"],
        steps=record["steps"],
        metrics=record["metrics"],
        checkpoint=record["checkpoint"],
        start_time_ms=record["start_ms"],
        end_time_ms=end_ms,
        path=record["path"],
        message=message,
    )
