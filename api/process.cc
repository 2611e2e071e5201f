// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "api/process.h"

namespace sheaf::inline v1::internal {

void ThrowNotInitialized() {
  throw SystemError("sheaf::Init was not called in this process, or Shutdown was called since");
}

void SetRuntime(Runtime* runtime) {
  runtime_generation.fetch_add(1, std::memory_order_acq_rel);
  current_runtime.store(runtime, std::memory_order_release);
}

}  // namespace sheaf::inline v1::internal
