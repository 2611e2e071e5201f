# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Vectorizers: texts as lists of how often each word comes."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sheaf.data.aggregate import AggregateFn
from sheaf.data.preprocessors.utils import (
    BuiltIn,
    ValueCounts,
    simple_hash,
    simple_split_tokenizer,
    tokens_of,
)
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["CountVectorizer", "HashingVectorizer"]


class _Vectorizer(BuiltIn):
    columns: list[str]
    output_columns: list[str]
    tokenization_fn: Callable[[str], list[str]]

    def _place(self, column: str) -> tuple[int, Callable[[str], int | None]]:
        """Returns how long vectors are, and what gives a token's place; None: it has none."""
        raise NotImplementedError

    def _changed(self, table: Any) -> dict[str, Any]:
        made = {}
        for name, output in zip(self.columns, self.output_columns):
            length, place_of = self._place(name)
            rows: list[list[int] | None] = []
            for tokens in tokens_of(table.column(name), self.tokenization_fn):
                row = None if tokens is None else [0] * length
                for token in tokens or ():
                    place = place_of(token)
                    if row is not None and place is not None:
                        row[place] += 1
                rows.append(row)
            made[output] = pa.array(rows, pa.list_(pa.int64()))
        return made


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.count_vectorizer")
class CountVectorizer(_Vectorizer):
    """Counts of the tokens that were there when it was fitted, the most frequent first; NULL of
    NULL. `stats_["token_counts(column)"]` has them with their counts.

    Args:
        columns: the columns.
        tokenization_fn: takes a text and returns its tokens; split(" ") when not given.
        max_features: of how many tokens, the most frequent; None: of all.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    def __init__(
        self,
        columns: list[str],
        tokenization_fn: Callable[[str], list[str]] | None = None,
        max_features: int | None = None,
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.columns, self.max_features = columns, max_features
        self.tokenization_fn = tokenization_fn or simple_split_tokenizer
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _aggregates(self) -> list[AggregateFn]:
        split = self.tokenization_fn
        return [
            ValueCounts(name, f"token_counts({name})", split=split, ranked=False)
            for name in self.columns
        ]

    def _learned(self, results: dict[str, Any]) -> dict[str, Any]:
        return {
            name: collections.Counter(
                dict(collections.Counter(counts or {}).most_common(self.max_features))
            )
            for name, counts in results.items()
        }

    def _place(self, column: str) -> tuple[int, Callable[[str], int | None]]:
        ranked = self.stats_[f"token_counts({column})"].most_common()
        places = {token: place for place, (token, _) in enumerate(ranked)}
        return len(places), places.get


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.hashing_vectorizer")
class HashingVectorizer(_Vectorizer):
    """Counts of tokens by hashes of them; NULL of NULL.

    Args:
        columns: the columns.
        num_features: how many hashes there are.
        tokenization_fn: takes a text and returns its tokens; split(" ") when not given.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        num_features: int,
        tokenization_fn: Callable[[str], list[str]] | None = None,
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        if num_features < 1:
            raise ValueError(f"num_features={num_features}: want 1 or more")
        self.columns, self.num_features = columns, num_features
        self.tokenization_fn = tokenization_fn or simple_split_tokenizer
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _place(self, column: str) -> tuple[int, Callable[[str], int | None]]:
        seen: dict[str, int] = {}

        def place(token: str) -> int:
            if token not in seen:
                seen[token] = simple_hash(token, self.num_features)
            return seen[token]

        return self.num_features, place
