# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Batches for PyTorch, TensorFlow and JAX, each imported when it is used."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from sheaf.data.errors import MissingPackageError

Names = str | list[str]


class Frameworks:
    """The methods of DataIterator that give tensors."""

    iter_batches: Any  # Of DataIterator.
    _first_row: Any

    def iter_tf_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int | None = 256,
        dtypes: Any = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
    ) -> Iterable[Any]:
        """Batches as dicts of TensorFlow's tensors.

        Args:
            prefetch_batches, batch_size, drop_last, local_shuffle_buffer_size, local_shuffle_seed:
                as of iter_batches.
            dtypes: a dtype of TensorFlow for all columns, or one by name of column.

        Returns:
            What gives them, anew each time.
        """
        tf = _tensorflow("iter_tf_batches")

        def tensors(batch: dict[str, Any]) -> dict[str, Any]:
            return {
                name: tf.convert_to_tensor(values, _of(dtypes, name))
                for name, values in batch.items()
            }

        return self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=tensors,
        )

    def to_tf(
        self,
        feature_columns: Names,
        label_columns: Names,
        *,
        additional_columns: Names | None = None,
        prefetch_batches: int = 1,
        batch_size: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        feature_type_spec: Any = None,
        label_type_spec: Any = None,
        additional_type_spec: Any = None,
    ) -> Any:
        """A tf.data.Dataset of (features, labels), or (features, labels, additional).

        Args:
            feature_columns: one, whose tensor comes; or several, a dict of tensors.
            label_columns: as feature_columns.
            additional_columns: as feature_columns; None: none.
            prefetch_batches, batch_size, drop_last, local_shuffle_buffer_size, local_shuffle_seed:
                as of iter_batches.
            feature_type_spec, label_type_spec, additional_type_spec: of TensorFlow; from the first
                batch when not given.

        Returns:
            The tf.data.Dataset.
        """
        tf = _tensorflow("to_tf")
        parts = [feature_columns, label_columns]
        specs = [feature_type_spec, label_type_spec]
        if additional_columns is not None:
            parts.append(additional_columns)
            specs.append(additional_type_spec)
        options = {
            "prefetch_batches": prefetch_batches,
            "batch_size": batch_size,
            "drop_last": drop_last,
            "local_shuffle_buffer_size": local_shuffle_buffer_size,
            "local_shuffle_seed": local_shuffle_seed,
        }

        def rows() -> Iterator[Any]:
            for batch in self.iter_batches(**options):
                yield tuple(_chosen(batch, columns) for columns in parts)

        first: Any = self._first_row()
        if first is None and any(spec is None for spec in specs):
            raise ValueError("to_tf: there are no rows, and no type specs: give all of them")
        signature = tuple(
            _spec(tf, first, columns) if spec is None else spec
            for columns, spec in zip(parts, specs)
        )
        return tf.data.Dataset.from_generator(rows, output_signature=signature)

    def iter_jax_batches(
        self,
        *,
        prefetch_batches: int = 1,
        batch_size: int = 256,
        dtypes: Any = None,
        collate_fn: Any = None,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        synchronize_batches: bool = False,
        paddings: Any = None,
    ) -> Iterable[Any]:
        """Batches as dicts of JAX's arrays, on the device that JAX takes.

        Args:
            prefetch_batches, batch_size, drop_last, local_shuffle_buffer_size, local_shuffle_seed:
                as of iter_batches.
            dtypes: of all columns, or by name of column.
            collate_fn: takes a batch and returns what is to come; instead of `dtypes`.
            synchronize_batches: True is not in Sheaf.
            paddings: what a smaller last batch is filled up with, one value or one by name of
                column; None: it stays smaller.

        Returns:
            What gives them, anew each time.
        """
        try:
            import jax.numpy as jnp
        except ImportError as error:
            raise MissingPackageError("iter_jax_batches", "jax") from error
        if synchronize_batches:
            raise NotImplementedError("iter_jax_batches: synchronize_batches=True is not in Sheaf")

        def arrays(batch: dict[str, Any]) -> Any:
            if paddings is not None:
                batch = {k: _padded(v, batch_size, _of(paddings, k)) for k, v in batch.items()}
            if collate_fn is not None:
                return collate_fn(batch)
            return {k: jnp.asarray(v, dtype=_of(dtypes, k)) for k, v in batch.items()}

        return self.iter_batches(
            prefetch_batches=prefetch_batches,
            batch_size=batch_size,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
            _collate_fn=arrays,
        )

    def to_torch(
        self,
        *,
        label_column: str | None = None,
        feature_columns: Any = None,
        label_column_dtype: Any = None,
        feature_column_dtypes: Any = None,
        batch_size: int = 1,
        prefetch_batches: int = 1,
        drop_last: bool = False,
        local_shuffle_buffer_size: int | None = None,
        local_shuffle_seed: int | None = None,
        unsqueeze_label_tensor: bool = True,
        unsqueeze_feature_tensors: bool = True,
    ) -> Any:
        """A torch IterableDataset of (features, labels).

        Args:
            label_column: the column of labels; None: labels are None.
            feature_columns: columns whose tensors are put side by side; a list of such lists, or a
                dict of them, gives a list or dict of tensors; None: all but the label.
            label_column_dtype: a torch.dtype.
            feature_column_dtypes: one, or a list or dict of them, as feature_columns.
            batch_size, prefetch_batches, drop_last, local_shuffle_buffer_size, local_shuffle_seed:
                as of iter_batches.
            unsqueeze_label_tensor: labels have the shape (rows, 1).
            unsqueeze_feature_tensors: columns of numbers have the shape (rows, 1) before they are
                put side by side, those of tensors (rows, 1, ...); False: of one column (rows,).

        Returns:
            The IterableDataset.

        Raises:
            TypeError, ValueError: feature_column_dtypes are not as feature_columns.
        """
        try:
            from torch.utils.data import IterableDataset
        except ImportError as error:
            raise MissingPackageError("to_torch", "torch") from error
        _check_dtypes(feature_columns, feature_column_dtypes)
        make = functools.partial(
            self.iter_batches,
            batch_size=batch_size,
            prefetch_batches=prefetch_batches,
            drop_last=drop_last,
            local_shuffle_buffer_size=local_shuffle_buffer_size,
            local_shuffle_seed=local_shuffle_seed,
        )

        def pairs(batch: dict[str, Any]) -> tuple[Any, Any]:
            label = None
            if label_column is not None:
                label = _stacked(batch, [label_column], label_column_dtype, unsqueeze_label_tensor)
            chosen = feature_columns
            if not chosen:
                chosen = [name for name in batch if name != label_column]
            return _features(batch, chosen, feature_column_dtypes, unsqueeze_feature_tensors), label

        class Pairs(IterableDataset):  # type: ignore[misc]
            def __iter__(self) -> Iterator[Any]:
                return map(pairs, make())

        return Pairs()


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else value


def _check_dtypes(columns: Any, dtypes: Any) -> None:
    """Raises when there are dtypes that do not belong to these columns."""
    if isinstance(dtypes, (dict, list, tuple)):
        several = bool(columns) and not isinstance(columns, Mapping) and not _is_name(columns[0])
        wanted: Any = dict if isinstance(columns, Mapping) else (list, tuple) if several else None
        if wanted is None or not isinstance(dtypes, wanted):
            raise TypeError(
                f"to_torch: feature_column_dtypes={dtypes!r} for feature_columns={columns!r}: want "
                "one torch.dtype, or as many lists or names as there are of columns"
            )
        if len(dtypes) != len(columns) or wanted is dict and set(dtypes) != set(columns):
            raise ValueError(
                f"to_torch: feature_column_dtypes={dtypes!r} for feature_columns={columns!r}: want "
                "one for each"
            )
    groups = columns.values() if isinstance(columns, Mapping) else columns or []
    if any(not group for group in groups):
        raise ValueError(f"to_torch: feature_columns={columns!r}: a list of columns is empty")


def _is_name(column: Any) -> bool:
    return not isinstance(column, (list, tuple))


def _features(batch: dict[str, Any], columns: Any, dtypes: Any, unsqueeze: bool) -> Any:
    if isinstance(columns, Mapping):
        return {
            name: _stacked(batch, some, _of(dtypes, name), unsqueeze)
            for name, some in columns.items()
        }
    if columns and not _is_name(columns[0]):
        each = dtypes if isinstance(dtypes, (list, tuple)) else [dtypes] * len(columns)
        return [_stacked(batch, some, one, unsqueeze) for some, one in zip(columns, each)]
    return _stacked(batch, columns, dtypes, unsqueeze)


def _stacked(batch: dict[str, Any], columns: list[str], dtype: Any, unsqueeze: bool) -> Any:
    import torch

    from sheaf.data.schema import check_columns
    from sheaf.data.tensors import tensors_of

    check_columns(columns, list(batch), "to_torch")
    made = tensors_of({name: batch[name] for name in columns}, dtype)
    tensors = [one.unsqueeze(1) if unsqueeze else one for one in made.values()]
    if len(tensors) == 1:
        return tensors[0]
    if not unsqueeze and all(one.dim() == 1 for one in tensors):
        return torch.stack(tensors, dim=1)
    return torch.cat(tensors, dim=1)


def _tensorflow(what: str) -> Any:
    try:
        import tensorflow
    except ImportError as error:
        raise MissingPackageError(what, "tensorflow") from error
    return tensorflow


def _chosen(batch: dict[str, Any], columns: Names) -> Any:
    if isinstance(columns, str):
        return batch[columns]
    if len(columns) == 1:
        return batch[columns[0]]
    return {name: batch[name] for name in columns}


def _spec(tf: Any, batch: dict[str, Any], columns: Names) -> Any:
    def one(values: Any) -> Any:
        return tf.TensorSpec((None, *values.shape[1:]), tf.convert_to_tensor(values).dtype)

    chosen = _chosen(batch, columns)
    return {k: one(v) for k, v in chosen.items()} if isinstance(chosen, dict) else one(chosen)


def _padded(values: Any, rows: int, value: Any) -> Any:
    short = rows - len(values)
    if short <= 0 or value is None:
        return values
    return np.concatenate([values, np.full((short, *values.shape[1:]), value, values.dtype)])
