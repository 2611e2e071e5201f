# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The languages of functions and actors."""

import enum


class Language(enum.Enum):
    """The language of a function or actor."""

    PYTHON = 0
    JAVA = 1
    CPP = 2
