# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Ray's configuration of copying between nodes and storage."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class SyncConfig:
    """What programs for Ray tell about copying. Trials write their checkpoints into the storage of
    the experiment themselves, so that it changes nothing.

    Args:
        sync_period: seconds between two copies.
        sync_timeout: seconds that a copy may take.
        sync_artifacts: whether files that a trial leaves in its folder are copied.
        sync_artifacts_on_checkpoint: whether they are with each checkpoint.
    """

    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True
