# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Counter, Gauge and Histogram of user code, on the Prometheus endpoint of the node (endpoints()
has those of all nodes).

A metric is served as `ray_NAME`, one series per process (label "pid") and set of tags. Values reach
the endpoint within half a second. A metric has at most 1,000 series in a process and on a node, and
all of a node 10,000: what comes later is served together, with the label overflow="true", and said
once.
"""

from __future__ import annotations

import atexit
import bisect
import math
import os
import re
import threading
import time
import warnings
from typing import Any

from sheaf import _core
from sheaf.util import each_node

_EACH_S = 0.5
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = ("pid", "le")
_MOST_SERIES = 1000  # Of a metric, as kMaxSeriesOfMetric of metrics/user_metrics.h.

Labels = tuple[tuple[str, str], ...]
_OVERFLOW: Labels = (("overflow", "true"),)

_ANSWER_S = 10.0  # How long the other nodes may take.


def endpoints() -> dict[str, str]:
    """Tells where the nodes serve their metrics.

    Nodes serve on the loopback of their machine unless `sheaf start --metrics-address` says
    otherwise.

    Returns:
        The URL of each node's endpoint, by NodeID. A node without CPUs, or that does not answer
        within 10 s, is missing.
    """
    return each_node.answers(_url_here, timeout=_ANSWER_S)[0]


def scrape(node_id: str | None = None) -> dict[str, str]:
    """Reads what the endpoints serve now. It is read on each node, so endpoints on the loopback are
    no hindrance.

    Args:
        node_id: the node, as sheaf.nodes() names it; None: all.

    Returns:
        Prometheus's text format, by NodeID; a node that does not answer within 10 s is missing.
    """
    return each_node.answers(_scrape_here, timeout=_ANSWER_S, only=node_id)[0]


def _url_here() -> str:
    return _core.metrics_url()


def _scrape_here() -> str:
    import urllib.request

    with urllib.request.urlopen(_core.metrics_url(), timeout=_ANSWER_S) as answer:
        return str(answer.read().decode())


class _File:
    """What this process has counted, and the file that shows it to the endpoint
    (metrics/user_metrics.h has the format)."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.metrics: dict[str, _Series] = {}
        self._written = 0.0
        self._timer: threading.Timer | None = None

    def changed(self) -> None:
        """Writes the file now, or soon if that was done lately. With the lock."""
        if self._timer is not None:
            return
        wait = self._written + _EACH_S - time.monotonic()
        if wait <= 0:
            self._write()
            return
        self._timer = threading.Timer(wait, self._write_late)
        self._timer.daemon = True
        self._timer.start()

    def _write_late(self) -> None:
        with self.lock:
            self._timer = None
            self._write()

    def write_last(self) -> None:
        """At the end of the process."""
        with self.lock:
            if self._timer is not None:
                self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        session = _core.session_directory()
        if not session:
            return  # What is counted before init is shown after it.
        folder = os.path.join(session, "metrics")
        lines = [line for series in self.metrics.values() for line in series.lines()]
        hidden = os.path.join(folder, f".{os.getpid()}")
        try:
            os.makedirs(folder, exist_ok=True)
            with open(hidden, "w", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
            os.replace(hidden, os.path.join(folder, str(os.getpid())))
        except OSError:
            pass  # The session has ended, or its disk is full: figures alone are lost.

    def forget(self) -> None:
        """In a forked child: what it counts is its own."""
        self.__init__()  # type: ignore[misc]


_file = _File()
atexit.register(_file.write_last)
os.register_at_fork(after_in_child=_file.forget)


class _Series:
    """The values of one metric in this process."""

    def __init__(self, kind: str, name: str, words: str, boundaries: tuple[float, ...]):
        self.kind, self.name, self.words, self.boundaries = kind, name, words, boundaries
        self.values: dict[Labels, float] = {}
        self.counts: dict[Labels, list[int]] = {}

    def place(self, labels: Labels) -> Labels:
        """Where a value with these labels goes: there, unless the metric has too many series."""
        if labels in self.values or len(self.values) < _MOST_SERIES:
            return labels
        if _OVERFLOW not in self.values:
            warnings.warn(
                f"the metric {self.name} has more than {_MOST_SERIES} series: its further ones are "
                'counted as one, with the label overflow="true"; give its tags fewer values',
                stacklevel=3,
            )
        return _OVERFLOW

    def lines(self) -> list[str]:
        out = [f"F\t{self.kind}\tray_{self.name}\t{_plain(self.words)}"]
        for labels, value in self.values.items():
            tail = "".join(f"\t{key}\t{_plain(text)}" for key, text in labels)
            if self.kind != "histogram":
                out.append(f"S\t{value!r}{tail}")
                continue
            total, buckets = 0, []
            for bound, count in zip((*self.boundaries, math.inf), self.counts[labels]):
                total += count
                buckets.append(f"{bound!r}:{total}")
            out.append(f"H\t{value!r}\t{','.join(buckets)}{tail}")
        return out


def _plain(text: str) -> str:
    return " ".join(text.split()) if any(c in text for c in "\t\n\r") else text


class Metric:
    """What the three kinds of metrics have in common. Thread-safe.

    Args:
        name: letters, digits and _; it is served as ray_NAME.
        description: for the endpoint.
        tag_keys: the names of its tags.

    Raises:
        ValueError: a name does not fit, or this process has another metric of this name.
        TypeError: the tags are no tuple of str, or this class itself is made.
    """

    _kind = ""

    def __init__(self, name: str, description: str = "", tag_keys: tuple[str, ...] | None = None):
        if type(self) is Metric:
            raise TypeError("Metric has no values: want a Counter, a Gauge or a Histogram")
        if not isinstance(name, str):
            raise TypeError(f"name={name!r}: want a str")
        if not name:
            raise ValueError("name='': a metric has a name")
        self._is_served = _NAME.fullmatch(name) is not None
        if not self._is_served:
            warnings.warn(
                f"Invalid metric name: {name}: it is not served; want letters, digits and _, as a "
                "Prometheus metric has",
                stacklevel=3,
            )
        keys = () if tag_keys is None else tag_keys
        if not isinstance(keys, tuple) or not all(isinstance(key, str) for key in keys):
            raise TypeError(
                f"tag_keys={tag_keys!r}: tag_keys should be a tuple, and Tag keys must be str"
            )
        for key in keys:
            if not _NAME.fullmatch(key) or key in _RESERVED:
                raise ValueError(
                    f"tag_keys: {key!r} is no name for a tag: want letters, digits "
                    "and _, and neither 'pid' nor 'le'"
                )
        self._name, self._description, self._tag_keys = name, description, keys
        self._default_tags: dict[str, str] = {}
        with _file.lock:
            series = self._series()
        if (series.kind, series.boundaries) != (self._kind, self._boundaries()):
            raise ValueError(
                f"{name} is a {series.kind} of this process already, with "
                f"boundaries {list(series.boundaries)}"
            )

    def _boundaries(self) -> tuple[float, ...]:
        return ()

    def set_default_tags(self, default_tags: dict[str, str]) -> Metric:
        """Gives tags values that calls need not name.

        Args:
            default_tags: values by tag, instead of those that were there.

        Returns:
            The metric.

        Raises:
            ValueError: the metric has no such tag.
            TypeError: a value is no str.
        """
        for key in default_tags:
            if key not in self._tag_keys:
                raise ValueError(
                    f"{self._name}: Unrecognized tag key {key}: there are {list(self._tag_keys)}"
                )
        self._check_tags(default_tags)
        self._default_tags = dict(default_tags)
        return self

    def _check_tags(self, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            if not isinstance(value, str):
                raise TypeError(f"tags: {key}={value!r}: Tag values must be str")

    def _labels(self, tags: dict[str, str] | None) -> Labels:
        if not self._tag_keys and not tags:
            return ()
        self._check_tags(tags or {})
        merged = {**self._default_tags, **(tags or {})}
        missing = [key for key in self._tag_keys if key not in merged]
        if missing:
            raise ValueError(f"{self._name}: Missing value for tag key(s): {','.join(missing)}")
        return tuple((key, merged[key]) for key in self._tag_keys)

    def _series(self) -> _Series:
        if not self._is_served:
            return _Series(self._kind, self._name, self._description, self._boundaries())
        # Anew after a fork.
        return _file.metrics.setdefault(
            self._name, _Series(self._kind, self._name, self._description, self._boundaries())
        )

    @property
    def info(self) -> dict[str, Any]:
        """name, description, tag_keys and default_tags."""
        return {
            "name": self._name,
            "description": self._description,
            "tag_keys": self._tag_keys,
            "default_tags": dict(self._default_tags),
        }

    def _arguments(self) -> tuple[Any, ...]:
        return self._name, self._description, self._tag_keys

    def __reduce__(self) -> Any:
        return _made_again, (type(self), self._arguments(), self._default_tags)


def _made_again(
    kind: type[Metric], arguments: tuple[Any, ...], default_tags: dict[str, str]
) -> Metric:
    return kind(*arguments).set_default_tags(default_tags)


def _check_number(value: Any) -> None:
    if not isinstance(value, (int, float)):
        raise TypeError(f"value={value!r}: value must be int or float")


class Counter(Metric):
    """A sum that only grows. Thread-safe.

    Args:
        name: letters, digits and _; it is served as ray_NAME.
        description: for the endpoint.
        tag_keys: the names of its tags.
    """

    _kind = "counter"

    def inc(self, value: float = 1.0, tags: dict[str, str] | None = None) -> None:
        """Adds to the sum.

        Args:
            value: more than 0.
            tags: values of all tags that have no default.

        Raises:
            ValueError: the value is not above 0, or a tag is unknown or missing.
            TypeError: the value is no number, or that of a tag no str.
        """
        _check_number(value)
        if not value > 0:
            raise ValueError(f"inc({value!r}): value must be >0")
        labels = self._labels(tags)
        with _file.lock:
            series = self._series()
            labels = series.place(labels)
            series.values[labels] = series.values.get(labels, 0.0) + float(value)
            _file.changed()


class Gauge(Metric):
    """A number that goes up and down. Thread-safe.

    Args:
        name: letters, digits and _; it is served as ray_NAME.
        description: for the endpoint.
        tag_keys: the names of its tags.
    """

    _kind = "gauge"

    def set(self, value: float | None, tags: dict[str, str] | None = None) -> None:
        """Changes the number.

        Args:
            value: from now on; None: it stays as it is.
            tags: values of all tags that have no default.

        Raises:
            ValueError: a tag is unknown or missing.
            TypeError: the value is no number, or that of a tag no str.
        """
        if value is None:
            return
        _check_number(value)
        labels = self._labels(tags)
        with _file.lock:
            series = self._series()
            series.values[series.place(labels)] = float(value)
            _file.changed()


class Histogram(Metric):
    """How many observations fell at or below each of the boundaries. Thread-safe.

    Args:
        name: letters, digits and _; it is served as ray_NAME.
        description: for the endpoint.
        boundaries: numbers above 0 that grow.
        tag_keys: the names of its tags.

    Raises:
        ValueError: a name or the boundaries do not fit, or this process has another metric of this
            name.
    """

    _kind = "histogram"

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: list[float] | None = None,
        tag_keys: tuple[str, ...] | None = None,
    ):
        if (
            not boundaries
            or any(not bound > 0 for bound in boundaries)
            or sorted(set(boundaries)) != list(boundaries)
        ):
            raise ValueError(
                f"boundaries={boundaries!r}: want positive values that grow, as "
                "boundaries=[1.0, 2.0]"
            )
        self.boundaries = boundaries
        self._bounds = tuple(float(bound) for bound in boundaries)
        super().__init__(name, description, tag_keys)

    def _boundaries(self) -> tuple[float, ...]:
        return self._bounds

    def _arguments(self) -> tuple[Any, ...]:
        return self._name, self._description, list(self._bounds), self._tag_keys

    @property
    def info(self) -> dict[str, Any]:
        """name, description, tag_keys, default_tags and boundaries."""
        return {**super().info, "boundaries": self.boundaries}

    def observe(self, value: float, tags: dict[str, str] | None = None) -> None:
        """Counts one observation.

        Args:
            value: what was observed.
            tags: values of all tags that have no default.

        Raises:
            ValueError: a tag is unknown or missing.
            TypeError: the value is no number, or that of a tag no str.
        """
        _check_number(value)
        labels = self._labels(tags)
        with _file.lock:
            series = self._series()
            labels = series.place(labels)
            counts = series.counts.setdefault(labels, [0] * (len(self._bounds) + 1))
            counts[bisect.bisect_left(self._bounds, value)] += 1
            series.values[labels] = series.values.get(labels, 0.0) + float(value)
            _file.changed()
