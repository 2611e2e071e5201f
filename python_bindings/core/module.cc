// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// sheaf._core: the extension under the package `sheaf`. Types and functions of the hot path are
// written by hand against the stable ABI; everything else is bound by nanobind.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "base/version.h"
#include "python_bindings/arrow/kernels.h"
#include "python_bindings/core/caller.h"
#include "python_bindings/core/cluster.h"
#include "python_bindings/core/collective.h"
#include "python_bindings/core/execution.h"
#include "python_bindings/core/logs.h"
#include "python_bindings/core/objects.h"
#include "python_bindings/core/parts.h"
#include "python_bindings/core/pickled_value.h"
#include "python_bindings/core/reference.h"
#include "python_bindings/core/session.h"
#include "python_bindings/core/template.h"
#include "python_bindings/core/waiting.h"

NB_MODULE(_core, module) {
  using namespace sheaf::python;
  // A program that ends by Ctrl-C, with frames in its traceback, need not free what they hold.
  nanobind::set_leak_warnings(false);
  PyObject* const self = module.ptr();
  if (!AddReferenceType(self) || !AddPinnedType(self) || !AddCallerType(self) ||
      !AddExecutionType(self) || !AddPartsType(self) ||
      PyModule_AddFunctions(self, object_functions) != 0 ||
      PyModule_AddFunctions(self, part_functions) != 0) {
    throw nanobind::python_error();
  }
  module.attr("__version__") = std::string(sheaf::kSheafVersion);
  BindSession(module);
  BindReadyQueue(module);
  BindTemplates(module);
  BindCluster(module);
  BindLogs(module);
  BindCollective(module);
  BindArrow(module);
}
