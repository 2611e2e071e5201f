// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// get, put, wait, and what else is done with references.
#pragma once

#include "python_bindings/core/python.h"

namespace sheaf::python {

extern PyMethodDef object_functions[];

}  // namespace sheaf::python
