// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// How objects that are ready wake an event loop: by one descriptor, written once however many they
// are, and without the GIL, so that no thread of the runtime waits for Python code.
#pragma once

#include <nanobind/nanobind.h>

namespace sheaf::python {

void BindReadyQueue(nanobind::module_& module);

}  // namespace sheaf::python
