// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Collective groups for sheaf.util.collective.
#pragma once

#include <nanobind/nanobind.h>

namespace sheaf::python {

void BindCollective(nanobind::module_& module);

}  // namespace sheaf::python
