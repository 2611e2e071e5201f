# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Reduces the gradients of a model in buckets, while the rest of them is still computed."""

from __future__ import annotations

from sheaf.util.collective.group import Group
from sheaf.util.collective.types import ReduceOp, reduction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    import numpy

    from sheaf._core import CollectiveWork

_ALIGN = 16  # Floats: arrays begin on cache lines.


class _Bucket:
    """Arrays side by side in memory that the ranks share."""

    def __init__(self) -> None:
        self.count = 0
        self.names: list[str] = []
        self.waiting: set[str] = set()  # Names that are not ready in this step.
        self.data: Any = None
        self.packed: Any = None  # What is sent: float16, or the kept indices and values.
        self.gathered: Any = None  # Top-k: of all ranks.
        self.residual: Any = None  # Top-k: what has not been sent.
        self.work: CollectiveWork | None = None


class GradientReducer:
    """Named float32 arrays whose sum or average over the ranks of ``group`` is taken once per step.

    The arrays lie in shared memory, in buckets: write each gradient into ``reducer[name]`` and call
    :meth:`mark_ready`. A bucket is reduced, beside this thread, as soon as all of its arrays and
    the buckets before it are ready; so name the arrays in the order in which they become ready, the
    last layer's first. :meth:`finish` waits; then the results are in the arrays. Not thread-safe.

    Args:
        group: all of its ranks make a reducer with the same arrays and options.
        arrays: shapes by name.
        op: "average" or "sum".
        compression: None; "fp16" sends half of the bytes (values above 65504 become infinite);
            "topk" sends of each bucket the ``keep`` part of the values that is largest, and adds
            the rest to the next step's gradient, so that nothing is lost.
        keep: in (0, 1]; at least one value of each bucket.
        bucket_bytes: a larger array has a bucket of its own.

    Raises:
        ValueError: no arrays, an empty one, or options that are none of these.
        CollectiveError: from `mark_ready` and `finish`; make a new one from a new group then.

    Example (in each of two actors):
        >>> reducer = GradientReducer(group, {"weight": (2, 3), "bias": (3,)})
        >>> reducer["weight"][:] = group.rank; reducer["bias"][:] = 1; reducer.finish()
        >>> reducer["weight"][0]
        array([0.5, 0.5, 0.5], dtype=float32)
    """

    def __init__(
        self,
        group: Group,
        arrays: Mapping[str, tuple[int, ...] | int],
        *,
        op: ReduceOp | str = "average",
        compression: str | None = None,
        keep: float = 0.01,
        bucket_bytes: int = 4 << 20,
    ) -> None:
        import numpy

        self._numpy, self._group, self._compression = numpy, group, compression
        self._op = ReduceOp(reduction(op))
        if self._op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
            raise ValueError(f"op={op!r}: gradients are reduced to their 'sum' or 'average'")
        if compression not in (None, "fp16", "topk"):
            raise ValueError(f"compression={compression!r}: want None, 'fp16' or 'topk'")
        if not 0 < keep <= 1:
            raise ValueError(f"keep={keep!r}: want more than 0, at most 1")
        if not arrays:
            raise ValueError("no arrays: want at least one")
        self._buckets: list[_Bucket] = []
        self._bucket_of: dict[str, _Bucket] = {}
        self._arrays: dict[str, Any] = {}
        self._started = 0
        places: list[tuple[str, tuple[int, ...], int, int]] = []
        for name, shape in arrays.items():
            shape = (shape,) if isinstance(shape, int) else tuple(shape)
            count = int(numpy.prod(shape, dtype="int64"))
            if count < 1:
                raise ValueError(f"the array {name!r} of shape {shape} has no values")
            size = -(-count // _ALIGN) * _ALIGN
            if not self._buckets or (self._buckets[-1].count + size) * 4 > bucket_bytes:
                self._buckets.append(_Bucket())
            bucket = self._bucket_of[name] = self._buckets[-1]
            places.append((name, shape, bucket.count, count))
            bucket.names.append(name)
            bucket.count += size
        for bucket in self._buckets:
            bucket.waiting = set(bucket.names)
            bucket.data = group.zeros(bucket.count)
            if compression == "fp16":
                bucket.packed = group.empty(bucket.count, "float16")
            elif compression == "topk":
                kept = numpy.dtype([("index", "uint32"), ("value", "float32")])
                amount = max(1, round(bucket.count * keep))
                bucket.packed = group.empty(amount, kept)
                bucket.gathered = group.empty((group.world_size, amount), kept)
                bucket.residual = numpy.zeros(bucket.count, "float32")
        for name, shape, offset, count in places:
            self._arrays[name] = self._bucket_of[name].data[offset : offset + count].reshape(shape)

    def __getitem__(self, name: str) -> numpy.ndarray[Any, Any]:
        """The array of this name; a view, to be written into."""
        return self._arrays[name]

    def __iter__(self) -> Any:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def mark_ready(self, name: str) -> None:
        """Says that an array is as it shall be sent; nobody touches it until :meth:`finish`
        returns.

        Args:
            name: of the array.

        Raises:
            ValueError: it is ready already in this step.
            KeyError: there is no such array.
            CollectiveError: a rank is lost or late.
        """
        bucket = self._bucket_of[name]
        if name not in bucket.waiting:
            raise ValueError(f"{name!r} is ready already in this step: call finish first")
        bucket.waiting.remove(name)
        # In their order, which is the same on all ranks.
        while self._started < len(self._buckets) and not self._buckets[self._started].waiting:
            self._start(self._buckets[self._started])
            self._started += 1

    def finish(self) -> None:
        """Marks what is not ready, waits until all is reduced, and begins the next step.

        Raises:
            CollectiveError: a rank is lost or late; the arrays hold undefined values.
        """
        for bucket in self._buckets:
            for name in sorted(bucket.waiting, key=bucket.names.index):
                self.mark_ready(name)
        for bucket in self._buckets:
            assert bucket.work is not None
            bucket.work.wait()
        for bucket in self._buckets:
            self._unpack(bucket)
            bucket.work = None
            bucket.waiting = set(bucket.names)
        self._started = 0

    def _start(self, bucket: _Bucket) -> None:
        numpy = self._numpy
        if self._compression == "topk":
            bucket.residual += bucket.data
            chosen = numpy.argpartition(numpy.abs(bucket.residual), -len(bucket.packed))[
                -len(bucket.packed) :
            ]
            bucket.packed["index"] = chosen
            bucket.packed["value"] = bucket.residual[chosen]
            bucket.residual[chosen] = 0
            bucket.work = self._group.all_gather(
                bucket.gathered.view("uint8"), bucket.packed.view("uint8"), async_op=True
            )
            return
        reduced = bucket.data
        if self._compression == "fp16":
            with numpy.errstate(over="ignore"):
                bucket.packed[:] = bucket.data
            reduced = bucket.packed
        bucket.work = self._group.all_reduce(reduced, self._op, async_op=True)

    def _unpack(self, bucket: _Bucket) -> None:
        if self._compression == "fp16":
            bucket.data[:] = bucket.packed
        elif self._compression == "topk":
            bucket.data.fill(0)
            for kept in bucket.gathered:  # In the order of the ranks: all get the same bits.
                bucket.data[kept["index"]] += kept["value"]
            if self._op == ReduceOp.AVERAGE:
                bucket.data /= self._group.world_size
