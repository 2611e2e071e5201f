# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Names of Ray that Sheaf itself has not: `sheaf` finds what lies here as if it lay beside its own
modules, so that `ray.worker` is sheaf.worker."""
