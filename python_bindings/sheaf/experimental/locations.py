# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
"""Where objects lie: not in Sheaf in this form."""

from sheaf._internal import absent

_INSTEAD = "sheaf.util.state.list_objects() says where objects are"
get_object_locations = absent.function("experimental.get_object_locations", _INSTEAD)
get_local_object_locations = absent.function("experimental.get_local_object_locations", _INSTEAD)
