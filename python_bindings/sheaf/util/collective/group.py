# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""A collective group as an object."""

from __future__ import annotations

import atexit
import weakref

from sheaf import _core
from sheaf.util.collective import cuda_arrays
from sheaf.util.collective.arrays import buffer_of
from sheaf.util.collective.types import Backend, ReduceOp, reduction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    import numpy

    from sheaf._core import CollectiveWork

# In the order of CollectiveKind (collective/communicator.h).
(
    _BARRIER,
    _ALL_REDUCE,
    _REDUCE,
    _REDUCE_SCATTER,
    _ALL_GATHER,
    _BROADCAST,
    _ALL_TO_ALL,
    _SEND,
    _RECV,
) = range(9)

_WITH_TWO_ARRAYS = (_ALL_REDUCE, _REDUCE_SCATTER, _ALL_GATHER, _ALL_TO_ALL)

DEFAULT_TIMEOUT_S = 30.0
DEFAULT_ARENA_BYTES = 4 << 30

_living: weakref.WeakSet[Group] = weakref.WeakSet()  # On CPUs.


@atexit.register
def _leave() -> None:
    """A process that ends leaves its groups, or what it sent last might not arrive."""
    for group in list(_living):
        group.destroy()


class Group:
    """This process's place among ``world_size`` ranks that reduce and exchange arrays.

    The ranks are actors, tasks or drivers of one job, on any nodes: those of one node share memory,
    nodes talk over TCP between their addresses in the cluster (not encrypted). They meet by the
    group's name: the constructor returns when all have come. Arrays are NumPy arrays, torch tensors
    on the CPU, or anything else with the buffer protocol, contiguous; they are used in place,
    without copies. From arrays of :meth:`empty` the ranks read straight from each other's memory,
    which is several times faster.

    Every rank calls the same operations in the same order. What goes wrong is an exception on every
    rank (`sheaf.util.collective.errors`) that names the rank whose fault it is; after it the group
    is dead, its arrays hold undefined values, and a new Group of the same name may be made.

    Thread-safe. The operations of one rank run one after the other in the order of their calls;
    sends to and receives from each rank are further such lines of their own.

    Args:
        world_size: number of ranks.
        rank: this process's, from 0.
        name: of the group, within the job. A process may be in several.
        timeout: seconds that an operation waits for the other ranks, if it does not name its own.
        formation_timeout: seconds to wait for the other ranks here; None: ``timeout``.
        epoch: counts the groups of one name; the ranks agree on the largest that one of them gives
            or knows.
        arena_bytes: of memory for :meth:`empty`; the same on all ranks. Memory is only taken as it
            is used.
        backend: "shm" for arrays of the CPU; "nccl" for CUDA arrays: torch tensors, or what has
            __cuda_array_interface__.
        device: of "nccl": the GPU, among those that this process sees; None: torch's current one,
            else the first.

    Raises:
        CollectiveTimeoutError: a rank did not come; the message says which, and why.
        RuntimeError: backend "nccl" without NCCL, an NVIDIA driver or a GPU; the message says
            which, and the remedy.
        ValueError: a number does not fit, or there is no such backend.
        TypeError: the name is no str.

    Example (in each of two actors):
        >>> group = Group(world_size=2, rank=rank)
        >>> x = group.empty(3, "float32"); x[:] = rank
        >>> group.all_reduce(x); x
        array([1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        world_size: int,
        rank: int,
        name: str = "default",
        *,
        timeout: float = DEFAULT_TIMEOUT_S,
        formation_timeout: float | None = None,
        epoch: int = 0,
        arena_bytes: int = DEFAULT_ARENA_BYTES,
        backend: str = "shm",
        device: int | None = None,
    ) -> None:
        for what, value in (
            ("world_size", world_size),
            ("rank", rank),
            ("epoch", epoch),
            ("arena_bytes", arena_bytes),
        ):
            if not hasattr(value, "__index__") or not 0 <= int(value) < 1 << 63:
                raise ValueError(f"{what}={value!r}: want a whole number that is not negative")
        if int(rank) >= int(world_size) or int(world_size) >= 1 << 31:
            raise ValueError(
                f"world_size={world_size!r}, rank={rank!r}: there is no rank "
                f"{rank!r} in a group of {world_size!r}"
            )
        if not isinstance(name, str):
            raise TypeError(f"name={name!r}: want a str")
        self.timeout = timeout
        formation = timeout if formation_timeout is None else formation_timeout
        self._on_gpu = Backend(backend) == Backend.NCCL
        if self._on_gpu:
            reason = cuda_arrays.why_not()
            if reason:
                raise RuntimeError(f"backend 'nccl' cannot be used here: {reason}")
            self._device = cuda_arrays.current_device() if device is None else device
            folders = cuda_arrays.library_folders()
            self._group = _core.form_nccl_group(
                name, world_size, rank, epoch, formation, self._device, folders
            )
        else:
            self._group = _core.form_collective_group(
                name, world_size, rank, epoch, arena_bytes, formation
            )
            _living.add(self)
        self.name, self.world_size, self.rank, self.epoch = (
            name,
            world_size,
            rank,
            self._group.epoch,
        )

    def all_reduce(
        self,
        array: Any,
        op: ReduceOp | str = "sum",
        *,
        out: Any = None,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> CollectiveWork | None:
        """Replaces ``array`` (or fills ``out``) by the reduction of the arrays of all ranks.

        Args:
            array: any shape; the same size and type on all ranks.
            op: a ReduceOp, or "sum", "product", "min", "max" or "average".
            out: where the result goes, of the size of ``array``; None: into ``array``.
            timeout: seconds to wait for the other ranks; None: the group's.
            async_op: returns at once; the arrays are in use until the work has ended.

        Returns:
            None, or with ``async_op`` the work: ``wait(timeout)`` returns whether it has ended, and
            raises what went wrong.

        Raises:
            CollectiveError: a rank died, was late, or called something else; the group is dead.
            ValueError: an array is not contiguous, or its type or size does not fit.
            TypeError: an array is none, or is None.
        """
        return self._run(
            _ALL_REDUCE, array, array if out is None else out, reduction(op), 0, timeout, async_op
        )

    def reduce(
        self,
        array: Any,
        root: int = 0,
        op: ReduceOp | str = "sum",
        *,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> CollectiveWork | None:
        """Replaces ``array`` of one rank by the reduction; the arrays of the others stay.

        Args:
            array: any shape; the same size and type on all ranks.
            root: the rank that gets the result.
            op: a ReduceOp, or "sum", "product", "min", "max" or "average".
            timeout: seconds to wait for the other ranks; None: the group's.
            async_op: returns at once; the arrays are in use until the work has ended.

        Returns:
            None, or with ``async_op`` the work: ``wait(timeout)`` returns whether it has ended, and
            raises what went wrong.

        Raises:
            CollectiveError: a rank died, was late, or called something else; the group is dead.
            ValueError: an array is not contiguous, or its type or size does not fit.
            TypeError: an array is none, or is None.
        """
        out = array if self.rank == root else None
        return self._run(_REDUCE, array, out, reduction(op), root, timeout, async_op)

    def broadcast(
        self, array: Any, root: int = 0, *, timeout: float | None = None, async_op: bool = False
    ) -> CollectiveWork | None:
        """Replaces ``array`` by that of one rank.

        Args:
            array: any shape; the same size and type on all ranks.
            root: the rank that it comes from.
            timeout: seconds to wait for the other ranks; None: the group's.
            async_op: returns at once; the arrays are in use until the work has ended.

        Returns:
            None, or with ``async_op`` the work: ``wait(timeout)`` returns whether it has ended, and
            raises what went wrong.

        Raises:
            CollectiveError: a rank died, was late, or called something else; the group is dead.
            ValueError: an array is not contiguous, or its type or size does not fit.
            TypeError: an array is none, or is None.
        """
        own = self.rank == root
        return self._run(
            _BROADCAST, array if own else None, None if own else array, 0, root, timeout, async_op
        )

    def all_gather(
        self, out: Any, array: Any, *, timeout: float | None = None, async_op: bool = False
    ) -> CollectiveWork | None:
        """Fills ``out`` with the arrays of all ranks, in their order.

        Args:
            out: ``world_size`` times the size of ``array``.
            array: any shape; the same size and type on all ranks.
            timeout: seconds to wait for the other ranks; None: the group's.
            async_op: returns at once; the arrays are in use until the work has ended.

        Returns:
            None, or with ``async_op`` the work: ``wait(timeout)`` returns whether it has ended, and
            raises what went wrong.

        Raises:
            CollectiveError: a rank died, was late, or called something else; the group is dead.
            ValueError: an array is not contiguous, or its type or size does not fit.
            TypeError: an array is none, or is None.
        """
        return self._run(_ALL_GATHER, array, out, 0, 0, timeout, async_op)

    def reduce_scatter(
        self,
        out: Any,
        array: Any,
        op: ReduceOp | str = "sum",
        *,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> CollectiveWork | None:
        """Fills ``out`` with this rank's block of the reduction of ``array``.

        Args:
            out: the block: block ``r`` is rank ``r``'s.
            array: ``world_size`` times the size of ``out``.
            op: a ReduceOp, or "sum", "product", "min", "max" or "average".
            timeout: seconds to wait for the other ranks; None: the group's.
            async_op: returns at once; the arrays are in use until the work has ended.

        Returns:
            None, or with ``async_op`` the work: ``wait(timeout)`` returns whether it has ended, and
            raises what went wrong.

        Raises:
            CollectiveError: a rank died, was late, or called something else; the group is dead.
            ValueError: an array is not contiguous, or its type or size does not fit.
            TypeError: an array is none, or is None.
        """
        return self._run(_REDUCE_SCATTER, array, out, reduction(op), 0, timeout, async_op)

    def all_to_all(
        self, out: Any, array: Any, *, timeout: float | None = None, async_op: bool = False
    ) -> CollectiveWork | None:
        """Sends block ``r`` of ``array`` to rank ``r``, and gets a block from each rank.

        Args:
            out: its block ``r`` is filled with what came from rank ``r``.
            array: of the size of ``out``, a multiple of ``world_size``.
            timeout: seconds to wait for the other ranks; None: the group's.
            async_op: returns at once; the arrays are in use until the work has ended.

        Returns:
            None, or with ``async_op`` the work: ``wait(timeout)`` returns whether it has ended, and
            raises what went wrong.

        Raises:
            CollectiveError: a rank died, was late, or called something else; the group is dead.
            ValueError: an array is not contiguous, or its type or size does not fit.
            TypeError: an array is none, or is None.
        """
        return self._run(_ALL_TO_ALL, array, out, 0, 0, timeout, async_op)

    def send(
        self, array: Any, to: int, *, timeout: float | None = None, async_op: bool = False
    ) -> CollectiveWork | None:
        """Sends ``array`` to a rank, which receives one of the same type and size.

        Args:
            array: any shape.
            to: the rank.
            timeout: seconds to wait for the other ranks; None: the group's.
            async_op: returns at once; the arrays are in use until the work has ended.

        Returns:
            None, or with ``async_op`` the work: ``wait(timeout)`` returns whether it has ended, and
            raises what went wrong.

        Raises:
            CollectiveError: a rank died, was late, or called something else; the group is dead.
            ValueError: an array is not contiguous, or its type or size does not fit.
            TypeError: an array is none, or is None.
        """
        return self._run(_SEND, array, None, 0, to, timeout, async_op)

    def recv(
        self, array: Any, source: int, *, timeout: float | None = None, async_op: bool = False
    ) -> CollectiveWork | None:
        """Fills ``array`` with what a rank sends.

        Args:
            array: of the type and size of what is sent.
            source: the rank.
            timeout: seconds to wait for the other ranks; None: the group's.
            async_op: returns at once; the arrays are in use until the work has ended.

        Returns:
            None, or with ``async_op`` the work: ``wait(timeout)`` returns whether it has ended, and
            raises what went wrong.

        Raises:
            CollectiveError: a rank died, was late, or called something else; the group is dead.
            ValueError: an array is not contiguous, or its type or size does not fit.
            TypeError: an array is none, or is None.
        """
        return self._run(_RECV, None, array, 0, source, timeout, async_op)

    def barrier(
        self, *, timeout: float | None = None, async_op: bool = False
    ) -> CollectiveWork | None:
        """Waits until every rank is here.

        Args:
            timeout: seconds to wait for the other ranks; None: the group's.
            async_op: returns at once.

        Returns:
            None, or with ``async_op`` the work.

        Raises:
            CollectiveError: a rank died, was late, or called something else; the group is dead.
        """
        return self._run(_BARRIER, None, None, 0, 0, timeout, async_op)

    def empty(
        self, shape: int | tuple[int, ...], dtype: Any = "float32"
    ) -> numpy.ndarray[Any, Any]:
        """Makes an array in memory that the ranks share; its values are undefined.

        It may outlive the group. ``torch.from_numpy`` of it is a tensor there. After an error of
        the group a rank that was late may still write to it: take a new one from the new group.

        Args:
            shape: of the array.
            dtype: of its values, as NumPy takes it; of backend "nccl" the name of a type.

        Returns:
            A NumPy array; of backend "nccl" an array in the GPU's memory, a tensor where torch is
            loaded.

        Raises:
            MemoryError: the group's memory (``arena_bytes``) is used up.
            ValueError: an extent is negative.
            TypeError: of "nccl": there is no such type.
        """
        if self._on_gpu:
            array: numpy.ndarray[Any, Any] = cuda_arrays.empty(
                self._group, shape, dtype, self._device
            )
            return array
        import numpy

        kind = numpy.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = 1
        for extent in shape:
            if int(extent) < 0:
                raise ValueError(f"shape={shape}: want extents that are not negative")
            count *= int(extent)
        if count * kind.itemsize >= 1 << 63:
            raise MemoryError(
                f"shape={shape}: {count * kind.itemsize} bytes are more than any memory has"
            )
        memory = self._group.allocate(count * kind.itemsize)
        return numpy.frombuffer(memory, dtype=kind, count=count).reshape(shape)

    def zeros(
        self, shape: int | tuple[int, ...], dtype: Any = "float32"
    ) -> numpy.ndarray[Any, Any]:
        """Makes an array as :meth:`empty` does, filled with zeros.

        Args:
            shape: of the array.
            dtype: of its values.

        Returns:
            The array.

        Raises:
            MemoryError: the group's memory (``arena_bytes``) is used up.
        """
        array = self.empty(shape, dtype)
        array.fill(0)
        return array

    def healthy(self) -> bool:
        """Returns whether no operation has failed here."""
        return self._group.healthy()

    def abort(self, why: str = "abort() was called") -> None:
        """Ends the operations of all ranks with an error. Any thread may call it.

        Args:
            why: the words of the errors.
        """
        self._group.abort(why)

    def destroy(self) -> None:
        """Leaves the group. Ranks that still wait for this one get RankLostError."""
        self._group.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.destroy()

    def __repr__(self) -> str:
        return (
            f"Group(world_size={self.world_size}, rank={self.rank}, name={self.name!r}, "
            f"epoch={self.epoch})"
        )

    def _run(
        self,
        kind: int,
        source: Any,
        target: Any,
        op: int,
        peer: int,
        timeout: float | None,
        async_op: bool,
    ) -> CollectiveWork | None:
        # Said before anything is sent: a call that the others do not match ends the group on all
        # ranks.
        if kind != _BARRIER and (
            source is None and target is None or kind == _REDUCE and source is None
        ):
            raise TypeError(
                "the array is None: want an array of NumPy, a tensor, or another "
                "object with the buffer protocol"
            )
        if kind in _WITH_TWO_ARRAYS and (source is None or target is None):
            raise TypeError(
                "array and out: want two arrays of NumPy, tensors, or other "
                "objects with the buffer protocol; one is None"
            )
        buffer = cuda_arrays.buffer_of if self._on_gpu else buffer_of
        start, source_type = buffer(source)
        end, target_type = (start, source_type) if target is source else buffer(target)
        limit = self.timeout if timeout is None else timeout
        call = self._group.start if async_op else self._group.run
        return call(kind, start, end, source_type or target_type, op, peer, limit)
