# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Preprocessor: what is fitted to a dataset once and then changes datasets and batches. Users
derive from it; sheaf.data.preprocessors has those that are made already."""

from __future__ import annotations

import base64
import enum
import inspect
import pickle
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from sheaf import cloudpickle
from sheaf.data.block import batch_to_table, table_to_batch
from sheaf.data.errors import MissingPackageError, shown

__all__ = ["Preprocessor", "PreprocessorNotFittedException", "SerializablePreprocessorBase"]

_MAGIC = b"CPKL:"
_FORMAT = 1  # Of what serialize() gives.
CLASSES: dict[str, tuple[Any, int]] = {}  # By the name in what serialize() gives: with its version.


class PreprocessorNotFittedException(RuntimeError):
    """A preprocessor was to change data before it was fitted."""


class Preprocessor:
    """Something that changes rows by what it learned of a dataset.

    Derive from it and define `_transform_pandas`, `_transform_numpy` or `_transform_arrow`, which
    take a batch and return one; and `_fit`, which takes a dataset, keeps what it learned in
    attributes whose names end with "_", and returns self. Without anything to learn, set
    `_is_fittable = False`.
    """

    class FitStatus(str, enum.Enum):  # noqa: UP042 (str() of a member is Ray's)
        """Whether it has been fitted."""

        NOT_FITTABLE = "NOT_FITTABLE"
        NOT_FITTED = "NOT_FITTED"
        PARTIALLY_FITTED = "PARTIALLY_FITTED"  # Of a Chain.
        FITTED = "FITTED"

    _is_fittable = True
    _fitted: bool | None = None

    def __init__(self) -> None:
        self.stats_: dict[str, Any] = {}

    def fit_status(self) -> Preprocessor.FitStatus:
        """Returns whether it has been fitted."""
        if not self._is_fittable:
            return Preprocessor.FitStatus.NOT_FITTABLE
        learned = any(name.endswith("_") and value for name, value in vars(self).items())
        if self._fitted or learned:
            return Preprocessor.FitStatus.FITTED
        return Preprocessor.FitStatus.NOT_FITTED

    def has_stats(self) -> bool:
        """Returns whether `stats_` holds anything."""
        return bool(getattr(self, "stats_", None))

    def _check_fitted(self, what: str) -> None:
        status = Preprocessor.FitStatus
        if self.fit_status() in (status.NOT_FITTED, status.PARTIALLY_FITTED):
            raise PreprocessorNotFittedException(
                f"`fit` must be called before `{what}`: {type(self).__name__} has learned nothing "
                "yet; or use fit_transform()"
            )

    def fit(self, ds: Any) -> Preprocessor:
        """Learns of a dataset; forgets what was learned before.

        Args:
            ds: the dataset.

        Returns:
            Itself.
        """
        status = self.fit_status()
        if status == Preprocessor.FitStatus.NOT_FITTABLE:
            return self
        if status != Preprocessor.FitStatus.NOT_FITTED:
            warnings.warn(
                f"{type(self).__name__} was fitted already: what it learned is overwritten",
                stacklevel=2,
            )
        self.stats_ = {}
        fitted = self._fit(ds)
        fitted._fitted = True
        return fitted

    def _fit(self, ds: Any) -> Preprocessor:
        raise NotImplementedError(
            f"{type(self).__name__} has no _fit(ds): define it, or set _is_fittable = False"
        )

    def fit_transform(
        self,
        ds: Any,
        *,
        transform_num_cpus: float | None = None,
        transform_memory: float | None = None,
        transform_batch_size: int | None = None,
        transform_concurrency: int | None = None,
    ) -> Any:
        """Learns of a dataset, then changes it.

        Args:
            ds: the dataset.
            transform_num_cpus, transform_memory, transform_batch_size, transform_concurrency: as
                those of transform.

        Returns:
            The changed dataset.
        """
        return self.fit(ds).transform(
            ds,
            batch_size=transform_batch_size,
            num_cpus=transform_num_cpus,
            memory=transform_memory,
            concurrency=transform_concurrency,
        )

    def transform(
        self,
        ds: Any,
        *,
        batch_size: int | None = None,
        num_cpus: float | None = None,
        memory: float | None = None,
        concurrency: int | None = None,
    ) -> Any:
        """Changes a dataset, lazily.

        Args:
            ds: the dataset.
            batch_size, num_cpus, memory, concurrency: as of map_batches.

        Returns:
            The changed dataset.

        Raises:
            PreprocessorNotFittedException: it was not fitted.
        """
        self._check_fitted("transform")
        given = {
            "batch_size": batch_size,
            "num_cpus": num_cpus,
            "memory": memory,
            "concurrency": concurrency,
        }
        return self._transform(ds, {k: v for k, v in given.items() if v is not None})

    def _transform(self, ds: Any, options: Mapping[str, Any]) -> Any:
        kind = self._determine_transform_to_use()
        return ds.map_batches(
            Applied(self, f"_transform_{kind}"),
            batch_format="pyarrow" if kind == "arrow" else kind,
            **{**self._get_transform_config(), **options},
        )

    def _get_transform_config(self) -> dict[str, Any]:
        """Returns keywords of map_batches; classes that derive may override it."""
        return {}

    def _determine_transform_to_use(self) -> str:
        """Returns "pandas", "numpy" or "arrow": which of the methods there is, or which it
        prefers."""
        kinds = [
            kind
            for kind in ("pandas", "numpy", "arrow")
            if getattr(type(self), f"_transform_{kind}")
            is not getattr(Preprocessor, f"_transform_{kind}")
        ]
        if not kinds:
            raise NotImplementedError(
                f"{type(self).__name__} has none of _transform_pandas, _transform_numpy and "
                "_transform_arrow: define one"
            )
        preferred = self.preferred_batch_format()
        preferred = str(getattr(preferred, "value", preferred))
        return preferred if len(kinds) > 1 and preferred in kinds else kinds[0]

    @classmethod
    def preferred_batch_format(cls) -> Any:
        """Returns which method is used where there are several: "pandas", "numpy" or "arrow"."""
        return "pandas"

    def transform_batch(self, data: Any) -> Any:
        """Changes one batch, in this process.

        Args:
            data: a DataFrame, a pa.Table, or a dict of arrays.

        Returns:
            The batch; of another kind than `data` where the class works with that.

        Raises:
            PreprocessorNotFittedException: it was not fitted.
        """
        self._check_fitted("transform_batch")
        if not (isinstance(data, (pa.Table, Mapping)) or _is_frame(data) or _is_array(data)):
            raise ValueError(
                f"transform_batch: {shown(data)} of type {type(data).__name__}: want a DataFrame "
                "of pandas, a pyarrow.Table, or a dict of arrays"
            )
        return self._transform_batch(data)

    def _transform_batch(self, data: Any) -> Any:
        kind = self._determine_transform_to_use()
        if kind == "pandas":
            return self._transform_pandas(data if _is_frame(data) else frame_of(data))
        if kind == "numpy":
            if isinstance(data, pa.Table) or _is_frame(data):
                data = table_to_batch(batch_to_table(data), "numpy", zero_copy=False)
            return self._transform_numpy(dict(data) if isinstance(data, Mapping) else data)
        table = self._transform_arrow(batch_to_table(data))
        return table_to_batch(table, "pandas") if _is_frame(data) else table

    def _transform_pandas(self, df: Any) -> Any:
        raise NotImplementedError

    def _transform_numpy(self, np_data: Any) -> Any:
        raise NotImplementedError

    def _transform_arrow(self, table: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def _derive_and_validate_output_columns(
        cls, columns: list[str], output_columns: list[str] | None
    ) -> list[str]:
        """Returns `output_columns`, or `columns` without them.

        Raises:
            ValueError: they are not as many.
        """
        if output_columns and len(columns) != len(output_columns):
            raise ValueError(
                f"Invalid output_columns: {len(output_columns)} names for {len(columns)} columns"
            )
        return output_columns or columns

    def get_input_columns(self) -> list[str]:
        """Returns the columns that it reads; none: it does not say."""
        return list(getattr(self, "columns", []))

    def get_output_columns(self) -> list[str]:
        """Returns the columns that it makes; none: it does not say."""
        return list(getattr(self, "output_columns", []))

    def serialize(self) -> str | bytes:
        """Returns it as text, which deserialize takes; it is pickled."""
        return base64.b64encode(pickle.dumps(self)).decode("ascii")

    @staticmethod
    def deserialize(serialized: str | bytes) -> Preprocessor:
        """What serialize was called of. It unpickles: trust who made it.

        Args:
            serialized: what serialize gave.

        Returns:
            The preprocessor.

        Raises:
            ValueError: it is nothing of the kind.
        """
        try:
            if isinstance(serialized, str):
                made = pickle.loads(base64.b64decode(serialized, validate=True))
                assert isinstance(made, Preprocessor)
                return made
            if serialized.startswith(_MAGIC):
                return _restored(cloudpickle.loads(serialized[len(_MAGIC) :]))
            raise ValueError("it begins with other bytes")
        except UnknownPreprocessorError:
            raise
        except Exception as error:
            raise ValueError(f"no serialized preprocessor: {shown(serialized)}: {error}") from error


class UnknownPreprocessorError(ValueError):
    """What was serialized is of a class that is not known here; `preprocessor_type` says which."""

    def __init__(self, preprocessor_type: str) -> None:
        self.preprocessor_type = preprocessor_type
        super().__init__(preprocessor_type)

    def __str__(self) -> str:
        return (
            f"unknown preprocessor '{self.preprocessor_type}': import the module of its class first"
        )


class SerializablePreprocessorBase(Preprocessor):
    """A preprocessor that serialize() writes as plain fields: what its constructor takes, which it
    keeps in attributes of the same names, and `stats_`."""

    def _get_serializable_fields(self) -> dict[str, Any]:
        fields = {name: getattr(self, name, None) for name in parameters_of(type(self))}
        return {**fields, "_fitted": self._fitted}

    def _set_serializable_fields(self, fields: dict[str, Any], version: int) -> None:
        for name, value in fields.items():
            setattr(self, name, value)

    def _get_stats(self) -> dict[str, Any]:
        return getattr(self, "stats_", {})

    def _set_stats(self, stats: dict[str, Any]) -> None:
        self.stats_ = stats

    @classmethod
    def get_preprocessor_class_id(cls) -> str:
        """Returns the name of the class in what serialize gives."""
        found = next((name for name, (one, _) in CLASSES.items() if one is cls), None)
        if found is None:
            raise TypeError(
                f"{cls.__name__} has no identifier: give it one by "
                "@sheaf.data.preprocessors.version_support.SerializablePreprocessor"
            )
        return found

    @classmethod
    def get_version(cls) -> int:
        """Returns the version of its fields."""
        return CLASSES[cls.get_preprocessor_class_id()][1]

    def serialize(self) -> str | bytes:
        """Returns it as bytes, which deserialize takes."""
        made = {
            "type": self.get_preprocessor_class_id(),
            "version": self.get_version(),
            "fields": self._get_serializable_fields(),
            "stats": self._get_stats(),
            "serializer_format_version": _FORMAT,
        }
        return _MAGIC + cloudpickle.dumps(made)

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in self._shown().items())
        return f"{type(self).__name__}({', '.join(given)})"

    def _shown(self) -> dict[str, Any]:
        """Returns what repr shows."""
        return {name: getattr(self, name, None) for name in parameters_of(type(self))}


def parameters_of(kind: Any) -> list[str]:
    """Names of what the constructor of a class takes."""
    return [name for name in inspect.signature(kind.__init__).parameters if name != "self"]


def _restored(made: Any) -> Preprocessor:
    if made["type"] not in CLASSES:
        raise UnknownPreprocessorError(made["type"])
    if made["serializer_format_version"] != _FORMAT:
        raise ValueError(f"it is of format {made['serializer_format_version']}, not {_FORMAT}")
    kind = CLASSES[made["type"]][0]
    found = kind.__new__(kind)
    found._set_serializable_fields(made["fields"], made["version"])
    found._set_stats(made["stats"])
    return found


class Applied:
    """A method of a preprocessor as the function of map_batches, which shows the class's name.

    Args:
        preprocessor: whose.
        method: its name.
    """

    def __init__(self, preprocessor: Preprocessor, method: str) -> None:
        self._preprocessor, self._method = preprocessor, method
        self.__name__ = type(preprocessor).__name__

    def __call__(self, batch: Any) -> Any:
        return getattr(self._preprocessor, self._method)(batch)


def _is_frame(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")


def _is_array(data: Any) -> bool:
    return type(data).__module__ == "numpy" and hasattr(data, "shape")


def frame_of(data: Any) -> Any:
    """A batch as a DataFrame of pandas."""
    return table_to_batch(batch_to_table(data), "pandas", zero_copy=False)


def frame_with(df: Any, table: Any, dropped: Iterable[str], made: Iterable[str]) -> Any:
    """A DataFrame with some columns of a table in the place of, or besides, its own; the others,
    and the index, are as they were.

    Args:
        df: the frame, which stays as it is.
        table: as many rows.
        dropped: columns that go.
        made: columns of the table that come.

    Returns:
        The frame.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingPackageError("a DataFrame", "pandas") from error
    out = df.drop(columns=list(dropped))
    values = table_to_batch(table.select(list(made)), "pandas")
    for name in made:
        out[name] = pandas.Series(values[name].array, index=df.index)
    return out
