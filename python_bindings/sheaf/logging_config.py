# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What init(logging_config=...) takes: how the loggers of the driver and of all its workers
write."""

from __future__ import annotations

import json
import logging
from typing import Any

from sheaf import _core
from sheaf.runtime_context import get_runtime_context

_ENCODINGS = ("TEXT", "JSON")
_TEXT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"
_ATTRIBUTES = {
    "name",
    "msg",
    "args",
    "levelname",
    "levelno",
    "pathname",
    "filename",
    "module",
    "exc_info",
    "exc_text",
    "stack_info",
    "lineno",
    "funcName",
    "created",
    "msecs",
    "relativeCreated",
    "thread",
    "threadName",
    "processName",
    "process",
    "taskName",
}


class LoggingConfig:
    """How the loggers of the driver and of all its workers write, for init(logging_config=...).

    Lines say in which job, node, process, task and actor they were written.

    Args:
        encoding: "TEXT" or "JSON".
        log_level: of the root logger, as logging has it.
        additional_log_standard_attrs: attributes of Python's LogRecord that each line has too.

    Raises:
        ValueError: a value is unknown.
    """

    encoding = "TEXT"
    log_level = "INFO"
    additional_log_standard_attrs: list[str]

    def __init__(
        self,
        encoding: str = "TEXT",
        log_level: str = "INFO",
        additional_log_standard_attrs: list[str] | None = None,
    ):
        if encoding not in _ENCODINGS:
            raise ValueError(f"encoding={encoding!r}: want 'TEXT' or 'JSON'")
        for name in additional_log_standard_attrs or ():
            if name not in _ATTRIBUTES:
                raise ValueError(
                    f"additional_log_standard_attrs: {name!r} is none; there are "
                    f"{', '.join(sorted(_ATTRIBUTES))}"
                )
        logging._checkLevel(log_level)  # type: ignore[attr-defined]
        self.encoding = encoding
        self.log_level = log_level
        self.additional_log_standard_attrs = list(additional_log_standard_attrs or ())

    def to_dict(self) -> dict[str, Any]:
        """Returns the three fields."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> LoggingConfig:
        """Returns the configuration of these fields.

        Args:
            d: what to_dict gave.
        """
        return cls(**d)

    def apply(self) -> None:
        """From now on the root logger of this process, and Sheaf's own, write so."""
        handler = logging.StreamHandler()
        handler.setLevel(self.log_level)
        handler.setFormatter(
            _Formatter(self.encoding == "JSON", self.additional_log_standard_attrs)
        )
        root = logging.getLogger()
        root.setLevel(self.log_level)
        root.addHandler(handler)
        logging.getLogger("sheaf").setLevel(self.log_level)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoggingConfig) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # Its fields may be set.

    def __repr__(self) -> str:
        return (
            f"LoggingConfig({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
        )


class _Formatter(logging.Formatter):
    def __init__(self, as_json: bool, attributes: list[str]):
        super().__init__(_TEXT)
        self._as_json = as_json
        self._attributes = attributes

    def format(self, record: logging.LogRecord) -> str:
        more = {name: getattr(record, name, None) for name in self._attributes}
        if not self._as_json:
            return super().format(record) + "".join(
                f" {name}={value}" for name, value in {**_place(), **more}.items()
            )
        line: dict[str, Any] = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            **_place(),
            **more,
        }
        if record.exc_info:
            line["exc_text"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _place() -> dict[str, Any]:
    """Where this is, as far as it is known."""
    if not _core.is_initialized():
        return {}
    context = get_runtime_context()
    found = {
        "job_id": context.get_job_id(),
        "worker_id": context.get_worker_id(),
        "node_id": context.get_node_id(),
        "actor_id": context.get_actor_id(),
        "task_id": context.get_task_id(),
        "task_name": context.get_task_name(),
    }
    return {name: value for name, value in found.items() if value}
