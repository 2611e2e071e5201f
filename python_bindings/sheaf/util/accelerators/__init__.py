# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Names of accelerators, for the option accelerator_type."""

from sheaf.util.accelerators import tpu as tpu
from sheaf.util.accelerators.accelerators import *  # noqa: F403
from sheaf.util.accelerators.accelerators import NVIDIA_A100

NVIDIA_TESLA_A100 = NVIDIA_A100
