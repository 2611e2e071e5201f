// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The kernels over Arrow columns for sheaf.arrow. Tables come and go by Arrow's PyCapsule interface.
#pragma once

#include <nanobind/nanobind.h>

namespace sheaf::python {

void BindArrow(nanobind::module_& module);

}  // namespace sheaf::python
