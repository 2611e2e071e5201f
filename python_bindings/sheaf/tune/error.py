# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What sheaf.tune raises."""


class TuneError(Exception):
    """An experiment cannot be run as it was described, or has failed."""
