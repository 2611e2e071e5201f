// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What the cluster knows (nodes, actors, tasks ...), placement groups, names, key-value pairs, and
// this process's context.
#pragma once

#include <nanobind/nanobind.h>

namespace sheaf::python {

void BindCluster(nanobind::module_& module);

}  // namespace sheaf::python
