# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Trials as records of the journal, and back."""

from __future__ import annotations

import base64
import contextlib
import gc
import json
from collections.abc import Callable, Iterator
from typing import Any

from sheaf.air import storage
from sheaf.air.checkpoint import Checkpoint
from sheaf.tune import result as fields
from sheaf.tune.error import TuneError
from sheaf.tune.execution import references
from sheaf.tune.execution.placement_groups import PlacementGroupFactory
from sheaf.tune.execution.references import References
from sheaf.tune.experiment.kept_checkpoints import Kept
from sheaf.tune.experiment.trial import MetricRecord, Trial

_PICKLED = "__pickled__"


def pack(value: Any) -> Any:
    """What JSON can hold and `unpack` makes the same value of: the value itself, or its pickle."""
    if isinstance(value, (str, int, float, bool, type(None))) and value == value:
        if type(value) in (str, int, float, bool, type(None)):
            return value
    if type(value) is list:
        return [pack(one) for one in value]
    if type(value) is dict and _PICKLED not in value and all(type(name) is str for name in value):
        return {name: pack(one) for name, one in value.items()}
    if type(value) is float:
        return value  # NaN, which Python's JSON knows.
    return {_PICKLED: base64.b64encode(references.dumps(value)).decode()}


def unpack(value: Any, renewed: References | None = None) -> Any:
    """See pack. renewed: stand for the references that were packed."""
    if isinstance(value, list):
        return [unpack(one, renewed) for one in value]
    if isinstance(value, dict):
        if _PICKLED in value:
            return references.loads(base64.b64decode(value[_PICKLED]), renewed or {})
        return {name: unpack(one, renewed) for name, one in value.items()}
    return value


def _safe(value: Any) -> Any:
    """As pack, of what may be no value to pickle: its text then."""
    try:
        return pack(value)
    except Exception:
        return str(value)


def record_of(trial: Trial) -> dict[str, Any]:
    """All that a restore needs of a trial."""
    last = {name: one for name, one in trial.last_result.items() if name != "config"}
    record = {
        "id": trial.trial_id,
        "name": trial.trainable_name,
        "status": trial.status,
        "config": pack(trial.config),
        "evaluated": _safe(trial.evaluated_params),
        "tag": trial.experiment_tag,
        "dirname": trial.dirname,
        "custom_name": trial.custom_trial_name,
        "last_result": _safe(last),
        "failures": trial.num_failures,
        "start_time": trial.start_time,
        "next_checkpoint": trial.kept.next_number,
        "checkpoints": [
            [kept.checkpoint.path.rsplit("/", 1)[-1], kept.number, _safe(_short(kept.result))]
            for kept in trial.kept.all
        ],
        "metrics": {
            name: [one.least, one.greatest, one.total, one.count, list(one.recent)]
            for name, one in trial.metrics.items()
        },
    }
    if trial.error_text is not None:
        record["error"] = _safe(trial.error)
        record["error_text"] = trial.error_text
    record["resources"] = _resources_of(trial)
    return record


def _resources_of(trial: Trial) -> list[Any]:
    factory = trial.placement_group_factory
    bundles: list[dict[str, float]] = factory.bundles
    if factory.head_bundle_is_empty:
        bundles = [{}, *bundles]
    return [bundles, factory.strategy]


def _short(result: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in result.items() if name != "config"}


def trial_of(
    record: dict[str, Any],
    filesystem: Any,
    make: Callable[..., Trial],
    renewed: References | None = None,
) -> Trial:
    """The trial of a record. make: makes one of (id, configuration, chosen values, tag). renewed:
    see unpack."""
    config, chosen = unpack(record["config"], renewed), unpack(record["evaluated"], renewed)
    trial = make(record["id"], config, chosen, record["tag"])
    trial.trainable_name = record["name"]
    trial.status = record["status"]
    trial.dirname = record["dirname"]
    trial.custom_trial_name = record["custom_name"]
    trial.last_result = unpack(record["last_result"])
    if trial.last_result:
        trial.last_result["config"] = trial.config
    trial.last_result_time = trial.last_result.get(fields.TIMESTAMP, 0.0)
    trial.num_failures = record["failures"]
    trial.start_time = record["start_time"]
    if record["resources"] != _resources_of(trial):  # They were changed.
        trial.placement_group_factory = PlacementGroupFactory(*record["resources"])
    for name, (least, greatest, total, count, recent) in record["metrics"].items():
        metric = trial.metrics[name] = MetricRecord(least)
        metric.greatest, metric.total, metric.count = greatest, total, count
        metric.recent.extend(recent)
    for name, number, result in record["checkpoints"]:
        checkpoint = Checkpoint(f"{trial.path}/{name}", filesystem)
        trial.kept.add(checkpoint, unpack(result), number)
    trial.kept.next_number = record["next_checkpoint"]
    trial.error_text = record.get("error_text")
    if trial.error_text is not None:
        error = unpack(record["error"])
        if not isinstance(error, BaseException):
            error = TuneError(trial.error_text)
        trial.error = error
    return trial


def trials_of(found: Any, path: str, filesystem: Any) -> list[Trial]:
    """All trials of a journal that is read (Found), to be looked at: without what they run."""
    factory = PlacementGroupFactory([{"CPU": 1.0}])

    def make(trial_id: str, config: Any, chosen: Any, tag: str) -> Trial:
        return Trial(
            "",
            config=config,
            trial_id=trial_id,
            evaluated_params=chosen,
            experiment_tag=tag,
            placement_group_factory=factory,
            experiment_path=path,
        )

    with no_collection():
        return [trial_of(record, filesystem, make) for record in found.trials.values()]


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """While many objects are made that all stay, the collector would look at them again and again
    and find nothing: half of the time that 10,000 trials take."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def given_checkpoint(path: str) -> Kept:
    """The checkpoint in a folder that no trial of the experiment has written. FileNotFoundError:
    there is none."""
    filesystem, inside = storage.resolve(path, None)
    files = storage.files_of(filesystem)
    if not files.names(inside):
        raise FileNotFoundError(f"restore={path!r}: there is no checkpoint in this folder")
    marker = json.loads(files.read(f"{inside}/{storage.MARKER}") or "{}")
    return Kept(Checkpoint(inside, filesystem), marker.get("metrics", {}), 0)


def check_checkpoints(trial: Trial, filesystem: Any) -> None:
    """Of a trial that was not over: what its folder has no longer is forgotten, and what its
    process has saved without the journal's knowledge goes, since the results that lead to it are
    lost."""
    if trial.path is None:
        return
    files = storage.files_of(filesystem)
    known = {kept.checkpoint.path for kept in trial.kept.all}
    there = set()
    for name in files.names(trial.path):
        path = f"{trial.path}/{name}"
        left_over = name.startswith((".incomplete-", ".going-"))
        complete = "." not in name and files.read(f"{path}/{storage.MARKER}") is not None
        if left_over or complete and path not in known:
            files.remove(path)
        elif complete:
            there.add(path)
    trial.kept.all = [kept for kept in trial.kept.all if kept.checkpoint.path in there]
