// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The logs of all nodes, by pieces.
#pragma once

#include <nanobind/nanobind.h>

namespace sheaf::python {

void BindLogs(nanobind::module_& module);

}  // namespace sheaf::python
