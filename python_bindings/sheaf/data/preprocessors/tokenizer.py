# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Tokenizer: texts as lists of words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sheaf.data.columns import column_of
from sheaf.data.preprocessors.utils import BuiltIn, simple_split_tokenizer, tokens_of
from sheaf.data.preprocessors.version_support import SerializablePreprocessor

__all__ = ["Tokenizer"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.tokenizer")
class Tokenizer(BuiltIn):
    """Lists of tokens of texts; NULL of NULL.

    Args:
        columns: the columns.
        tokenization_fn: takes a text and returns its tokens; split(" ") when not given.
        output_columns: where the results go, one for each; the same columns when not given.
    """

    _is_fittable = False

    def __init__(
        self,
        columns: list[str],
        tokenization_fn: Callable[[str], list[str]] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self.columns = columns
        self.tokenization_fn = tokenization_fn or simple_split_tokenizer
        self.output_columns = self._derive_and_validate_output_columns(columns, output_columns)

    def _changed(self, table: Any) -> dict[str, Any]:
        return {
            output: column_of(output, tokens_of(table.column(name), self.tokenization_fn))
            for name, output in zip(self.columns, self.output_columns)
        }
