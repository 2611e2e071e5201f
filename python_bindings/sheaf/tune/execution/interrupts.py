# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while an experiment runs."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

_logger = logging.getLogger(__name__)


class Interrupts:
    """While this is entered the first SIGINT asks for an end (`asked`), and the next one raises
    KeyboardInterrupt as ever. Without effect where somebody else handles or ignores the signal, in
    another thread than the main one, and with TUNE_DISABLE_SIGINT_HANDLER=1."""

    def __init__(self) -> None:
        self.asked = False
        self._taken = False

    def __enter__(self) -> Interrupts:
        self._taken = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
            and os.environ.get("TUNE_DISABLE_SIGINT_HANDLER", "0") != "1"
        )
        if self._taken:
            signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        self._give_back()

    def _ask(self, signum: int, frame: Any) -> None:
        self.asked = True
        self._give_back()
        _logger.warning(
            "interrupted: the experiment stops, and its state is saved; once more: at once"
        )

    def _give_back(self) -> None:
        if self._taken:
            self._taken = False
            signal.signal(signal.SIGINT, signal.default_int_handler)
