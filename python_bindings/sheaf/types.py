# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Types for annotations."""

from sheaf._core import ObjectRef
from sheaf.object_ref import ObjectRefGenerator

__all__ = ["ObjectRef", "ObjectRefGenerator"]
