// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// From the options of a function, class or method to what is the same for all its calls.
#pragma once

#include <nanobind/nanobind.h>

#include "worker/runtime.h"

namespace sheaf::python {

// The template that make_template gave. False: an exception is set.
bool TemplateFrom(PyObject* object, TemplateHandle* out);

void BindTemplates(nanobind::module_& module);

}  // namespace sheaf::python
