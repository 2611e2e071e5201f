# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Expressions over columns, for filters and new columns: each is a kernel of pyarrow.compute, or a
user's function over whole columns."""

from __future__ import annotations

from sheaf.data.expressions import namespaces  # noqa: F401 (its classes enter themselves)
from sheaf.data.expressions.expression import (
    AliasExpr,
    BinaryExpr,
    ColumnExpr,
    Expr,
    LiteralExpr,
    UnaryExpr,
    col,
    lit,
)
from sheaf.data.expressions.operation import Operation
from sheaf.data.expressions.rows import (
    DownloadExpr,
    MonotonicallyIncreasingIdExpr,
    RandomExpr,
    UUIDExpr,
    download,
    monotonically_increasing_id,
    random,
    uuid,
)
from sheaf.data.expressions.several import StarExpr, UnnestExpr, star, unnest
from sheaf.data.expressions.text import parse
from sheaf.data.expressions.udfs import UDFExpr, pyarrow_udf, udf

__all__ = [
    "AliasExpr",
    "BinaryExpr",
    "ColumnExpr",
    "DownloadExpr",
    "Expr",
    "LiteralExpr",
    "MonotonicallyIncreasingIdExpr",
    "Operation",
    "RandomExpr",
    "StarExpr",
    "UDFExpr",
    "UUIDExpr",
    "UnaryExpr",
    "UnnestExpr",
    "col",
    "download",
    "lit",
    "monotonically_increasing_id",
    "parse",
    "pyarrow_udf",
    "random",
    "star",
    "udf",
    "unnest",
    "uuid",
]
