# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What operators of expressions do, by Ray's names, and the kernels that do it."""

from __future__ import annotations

import enum


class Operation(enum.StrEnum):
    """The operators: `op` of BinaryExpr and UnaryExpr."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MOD = "mod"
    FLOORDIV = "floordiv"
    GT = "gt"
    LT = "lt"
    GE = "ge"
    LE = "le"
    EQ = "eq"
    NE = "ne"
    AND = "and"
    OR = "or"
    NOT = "not"
    IS_NULL = "is_null"
    IS_NOT_NULL = "is_not_null"
    IN = "in"
    NOT_IN = "not_in"


# Of two expressions: how each is written, and its kernel.
BINARY = {
    Operation.ADD: ("+", "add"),
    Operation.SUB: ("-", "subtract"),
    Operation.MUL: ("*", "multiply"),
    Operation.DIV: ("/", "divide"),
    Operation.MOD: ("%", "remainder"),
    Operation.FLOORDIV: ("//", "floor_divide"),
    Operation.GT: (">", "greater"),
    Operation.LT: ("<", "less"),
    Operation.GE: (">=", "greater_equal"),
    Operation.LE: ("<=", "less_equal"),
    Operation.EQ: ("==", "equal"),
    Operation.NE: ("!=", "not_equal"),
    Operation.AND: ("&", "and_kleene"),
    Operation.OR: ("|", "or_kleene"),
}
UNARY = {Operation.NOT: "invert", Operation.IS_NULL: "is_null", Operation.IS_NOT_NULL: "is_valid"}
SIGNS = {kernel: sign for sign, kernel in BINARY.values()}
OF_KERNEL = {kernel: op for op, (_, kernel) in BINARY.items()} | {
    kernel: op for op, kernel in UNARY.items()
}
