# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Rows and batches of a dataset, one after the other, while the rest is made."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sheaf
from sheaf.data import batches as batching
from sheaf.data import block as blocks
from sheaf.data.methods.arguments import suggesting
from sheaf.data.methods.frameworks import Frameworks
from sheaf.data.operators import Bundle

_SLICE_S = 0.05  # A thread that waits hears of exceptions that others set for it in between.
_AHEAD = 2  # Blocks that are fetched in front of the one in use.


def table_of(bundle: Bundle) -> Any:
    """The rows of a bundle, as a view of its block."""
    block = bundle.block
    if isinstance(block, sheaf.ObjectRef):
        block = sheaf.get(block)
    table = blocks.batch_to_table(block)
    if bundle.start == 0 and bundle.stop >= table.num_rows:
        return table
    return blocks.slice_rows(table, bundle.start, bundle.num_rows)


class Again:
    """Something that iterates anew each time.

    Args:
        make: gives an iterator.
    """

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return self._make()


class DataIterator(Frameworks):
    """What a trainer's worker iterates over, any number of times; each is one epoch."""

    _materialized: Any = (
        None  # Makes a dataset of bundles; of sheaf.data.dataset, which stands on this.
    )

    def _bundles(self) -> Any:
        """The blocks of one epoch, as an iterator; its close(), which any thread may call, ends
        what makes them."""
        raise NotImplementedError

    _repeats = True  # Whether each epoch gives this iterator the same rows.
    _given = 0  # Rows that the current epoch, or the last one that was left, has given out.
    _skipped = 0  # Rows that the next epoch leaves out.

    def state_dict(self) -> dict[str, Any]:
        """Where iter_rows, iter_batches, or what is made of them, stands: how many rows of the
        epoch have been given out; 0 after its end. It goes into a checkpoint, and load_state_dict
        takes it.

        Returns:
            Plain values.
        """
        return {"version": 1, "rows": self._given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next epoch goes on where another one stood: it makes the rows that were given out
        there again, and leaves them out. That is right where each epoch gives the same rows in the
        same order: ExecutionOptions(preserve_order=True), and seeds for what is drawn at random.

        Args:
            state: what state_dict gave.

        Raises:
            NotImplementedError: of streaming_split, whose consumers get other rows each time.
            ValueError: it is something else.
        """
        rows = state.get("rows") if isinstance(state, dict) else None
        if not isinstance(rows, int) or rows < 0 or state.get("version") != 1:
            raise ValueError(f"load_state_dict: {state!r}: want what state_dict gave")
        if not self._repeats:
            raise NotImplementedError(
                "load_state_dict: consumers of streaming_split get other rows in each epoch: split "
                "the dataset by split(n), and iterate over one part"
            )
        self._skipped = rows

    def _is_done_with(self, bundles: Any, rows: float) -> None:
        """The loop over these has asked for what lies behind the first rows; `inf`: it has come to
        its end."""

    def _first_row(self) -> Any:
        """A batch of one row, or None; the place in the epoch stays."""
        place = self._given, self._skipped
        try:
            return next(iter(self.iter_batches(batch_size=1, prefetch_batches=0)), None)
        finally:
            self._given, self._skipped = place

    def get_context(self) -> Any:
        """Returns the settings."""
        from sheaf.data.context import DataContext

        return getattr(self, "_context", None) or DataContext.get_current()

    def schema(self) -> Any:
        """Returns the Schema; None where there is no row."""
        raise NotImplementedError

    def stats(self) -> str:
        """Returns what the last epoch took, as text."""
        raise NotImplementedError

    def iter_rows(self) -> Iterable[dict[str, Any]]:
        """Rows as dicts.

        Returns:
            What gives them, anew each time.
        """

        def rows() -> Iterator[dict[str, Any]]:
            skipped, self._skipped = self._skipped, 0
            self._given = skipped
            bundles = self._bundles()
            try:
                for table in batching.behind(map(table_of, bundles), skipped):
                    for row in blocks.table_to_rows(table):
                        self._given += 1
                        yield row
                    self._is_done_with(bundles, self._given)
                self._is_done_with(bundles, math.inf)
                self._given = 0
            finally:
                bundles.close()

        return Again(rows)

    def iter_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        batch_format: str | None = "default",
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        _collate_fn: Callable[[Any], Any] | None = None,
        _finalize_fn: Callable[[Any], Any] | None = None,
    ) -> Iterable[Any]:
        """Batches.

        Args:
            prefetch_batches: how many are made ahead, in a thread; 0: none.
            batch_size: rows; None: whole blocks.
            batch_format: as of map_batches.
            drop_last: leaves out a last batch that is smaller.
            local_shuffle_buffer_size: rows that batches are drawn from at random; None: in order.
            local_shuffle_seed: of these draws.

        Returns:
            What gives them, anew each time.
        """
        batching.check_batch_size(batch_size)
        if batch_format not in blocks.BATCH_FORMATS:
            raise ValueError(
                f"batch_format={batch_format!r}: want one of {list(blocks.BATCH_FORMATS)}"
            )
        if prefetch_batches < 0:
            raise ValueError(f"prefetch_batches={prefetch_batches}: want 0 or more")
        if local_shuffle_buffer_size is not None and local_shuffle_buffer_size < 1:
            raise ValueError(
                f"local_shuffle_buffer_size={local_shuffle_buffer_size}: want 1 or more rows"
            )

        def made(bundles: Any, skipped: int) -> Iterator[tuple[int, Any]]:
            tables = map(table_of, bundles)
            if local_shuffle_buffer_size is not None:
                cut = batching.shuffled(
                    tables, batch_size, local_shuffle_buffer_size, local_shuffle_seed, drop_last
                )
                cut = batching.behind(cut, skipped)
            else:
                cut = batching.rebatch(batching.behind(tables, skipped), batch_size, drop_last)
            for table in cut:
                batch = blocks.table_to_batch(table, batch_format)
                yield table.num_rows, batch if _collate_fn is None else _collate_fn(batch)

        def given() -> Iterator[Any]:
            skipped, self._skipped = self._skipped, 0
            self._given = skipped
            bundles = self._bundles()
            source = made(bundles, skipped)
            try:
                for rows, batch in _ahead(source, prefetch_batches) if prefetch_batches else source:
                    self._given += rows
                    yield batch if _finalize_fn is None else _finalize_fn(batch)
                    if local_shuffle_buffer_size is None:
                        self._is_done_with(bundles, self._given)
                self._is_done_with(bundles, math.inf)
                self._given = 0
            finally:
                bundles.close()

        return Again(given)

    def iter_torch_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        device: Any = "auto",
        collate_fn: Any = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        pin_memory: bool = False,
    ) -> Iterable[Any]:
        """Batches as dicts of tensors, which may be written: they share no memory with the data.

        Args:
            prefetch_batches, batch_size, drop_last, local_shuffle_buffer_size, local_shuffle_seed:
                as of iter_batches.
            dtypes: a torch.dtype for all columns, or one by name of column.
            device: where tensors go; "auto": the GPU of the trainer's worker, if it has one, else
                the CPU.
            collate_fn: takes a batch (a dict of arrays, or what its class in
                sheaf.data.collate_fn says) and returns what is to come; instead of `dtypes`.
                What is_tensor_batch_type knows goes to the device, where lists of tensors in
                lists and dicts become one tensor.
            pin_memory: tensors are copied to page-locked memory first.

        Returns:
            What gives them, anew each time.
        """
        from sheaf.data import tensors

        if collate_fn is not None and dtypes is not None:
            raise ValueError("iter_torch_batches: collate_fn and dtypes: want one of them")
        collate, finalize = tensors.for_torch(dtypes, device, collate_fn, pin_memory)
        return self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            batch_format="pyarrow",
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=collate,
            _finalize_fn=finalize,
        )

    def materialize(self) -> Any:
        """Returns a dataset whose blocks are those of one epoch."""
        bundles = self._bundles()
        try:
            made = self._materialized(list(bundles))
            self._is_done_with(bundles, math.inf)
            return made
        finally:
            bundles.close()


suggesting(DataIterator)


def _ahead(source: Iterator[Any], count: int) -> Iterator[Any]:
    """What an iterator gives, made in a thread that is up to `count` ahead."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(count)
    stopped = threading.Event()

    def put(kind: str, value: Any) -> bool:
        while not stopped.is_set():
            try:
                ready.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def run() -> None:
        try:
            for value in source:
                if not put("value", value):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=run, name="sheaf-batches", daemon=True)
    try:
        thread.start()
        while True:
            try:
                kind, value = ready.get(timeout=_SLICE_S)
            except queue.Empty:
                continue
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        stopped.set()
