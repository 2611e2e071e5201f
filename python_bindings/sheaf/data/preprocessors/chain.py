# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Chain: preprocessors one behind the other."""

from __future__ import annotations

from typing import Any

from sheaf.data.aggregate import AggregateFn
from sheaf.data.preprocessors.base import Preprocessor, SerializablePreprocessorBase
from sheaf.data.preprocessors.utils import BuiltIn, results_of
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["Chain"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.chain")
class Chain(SerializablePreprocessorBase):
    """Preprocessors one behind the other, each fitted to what those before it give. Neighbours that
    read no column which the other makes learn in one pass.

    Args:
        *preprocessors: the preprocessors.
    """

    def __init__(self, *preprocessors: Preprocessor) -> None:
        super().__init__()
        self.preprocessors = preprocessors

    def fit_status(self) -> Preprocessor.FitStatus:
        """Returns whether all, some or none of those that can be have been fitted."""
        status = Preprocessor.FitStatus
        found = {one.fit_status() for one in self.preprocessors} - {status.NOT_FITTABLE}
        if not found:
            return status.NOT_FITTABLE
        return found.pop() if len(found) == 1 else status.PARTIALLY_FITTED

    def _fit(self, ds: Any) -> Chain:
        waiting: list[BuiltIn] = []  # Those that learn of `ds`, in one pass.
        between: list[Preprocessor] = []  # Those whose changes come behind `ds`.
        changed: set[str] | None = set()  # Columns that they change; None: any.
        for one in self.preprocessors:
            if one.fit_status() != Preprocessor.FitStatus.NOT_FITTABLE:
                if changed is None or not isinstance(one, BuiltIn) or changed & _read(one):
                    _learn(ds, waiting)
                    for earlier in between:
                        ds = earlier.transform(ds)
                    waiting, between, changed = [], [], set()
                if isinstance(one, BuiltIn):
                    waiting.append(one)
                else:
                    one.fit(ds)
            between.append(one)
            made = _made(one)
            changed = None if changed is None or made is None else changed | made
        _learn(ds, waiting)
        return self

    def _transform(self, ds: Any, options: Any) -> Any:
        for one in self.preprocessors:
            ds = one.transform(ds, **options)
        return ds

    def _transform_batch(self, data: Any) -> Any:
        for one in self.preprocessors:
            data = one.transform_batch(data)
        return data

    def _determine_transform_to_use(self) -> str:
        return self.preprocessors[0]._determine_transform_to_use()

    def _get_serializable_fields(self) -> dict[str, Any]:
        return {"preprocessors": self.preprocessors}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.preprocessors))})"


def _read(one: BuiltIn) -> set[str]:
    return set(one.get_input_columns())


def _made(one: Preprocessor) -> set[str] | None:
    if isinstance(one, BuiltIn):
        return {*one.get_output_columns(), *one._dropped()}
    made = one.get_output_columns()
    return set(made) if made else None


def _learn(ds: Any, waiting: list[BuiltIn]) -> None:
    aggregates: list[AggregateFn] = [agg for one in waiting for agg in one._aggregates()]
    results = results_of(ds, aggregates)
    for one in waiting:
        one._settle(results)
        one._fitted = True
