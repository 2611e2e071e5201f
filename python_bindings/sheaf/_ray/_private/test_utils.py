# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""What tests of other projects take from `ray._private.test_utils`."""

from sheaf._common.test_utils import Semaphore, SignalActor, wait_for_condition

__all__ = ["Semaphore", "SignalActor", "wait_for_condition"]
