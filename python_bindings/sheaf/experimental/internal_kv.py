# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""The key-value store of the cluster: not in Sheaf; the names exist, and say so when they are
used."""

from sheaf._internal import absent

_INSTEAD = "keep small values in a named actor"
internal_kv_get_gcs_client = absent.function("internal_kv.internal_kv_get_gcs_client", _INSTEAD)
_internal_kv_get = absent.function("internal_kv._internal_kv_get", _INSTEAD)
_internal_kv_put = absent.function("internal_kv._internal_kv_put", _INSTEAD)
_internal_kv_del = absent.function("internal_kv._internal_kv_del", _INSTEAD)
_internal_kv_exists = absent.function("internal_kv._internal_kv_exists", _INSTEAD)
_internal_kv_list = absent.function("internal_kv._internal_kv_list", _INSTEAD)
