// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How a Python process becomes a driver or a worker.
#pragma once

#include <nanobind/nanobind.h>

namespace sheaf::python {

void BindSession(nanobind::module_& module);

}  // namespace sheaf::python
