# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What Ray programs ask about Ray's client mode, which Sheaf does not need."""


class _Client:
    """Answers that this process is a driver like any other."""

    def is_connected(self) -> bool:
        """Never: there is no second protocol."""
        return False


ray = _Client()
