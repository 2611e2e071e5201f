// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Questions to the cluster, for the files that hand Python what it knows. With the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "python_bindings/core/options.h"
#include "python_bindings/core/process.h"

namespace sheaf::python {

// The runtime of this process; throws where there is none.
inline Runtime& Required() {
  Runtime* const runtime = RequireRuntime();
  if (runtime == nullptr) throw nanobind::python_error();
  return *runtime;
}

[[noreturn]] inline void Throw(const absl::Status& status,
                               ErrorKind resource = ErrorKind::kSystem) {
  RaiseStatus(status, resource);
  throw nanobind::python_error();
}

// Runs `call` without the GIL; throws when its status is not OK.
template <class Call>
auto Ask(Call call) {
  Runtime& runtime = Required();
  const RuntimeInUse in_use;
  auto answer = [&] {
    const WithoutGil free;
    return call(runtime);
  }();
  if (!answer.ok()) Throw(answer.status());
  return *std::move(answer);
}

inline Nanos Soon() { return MonotonicNow() + kClusterTimeout; }

}  // namespace sheaf::python
