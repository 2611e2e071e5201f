// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// The libraries that a user names instead of having them found (collective/nccl/dynamic_library.h).
#pragma once

#include <string>

namespace sheaf {

struct LibraryPaths {
  std::string nccl;  // SHEAF_NCCL_LIB: libnccl.so.2. Empty: it is looked for.
  std::string cuda;  // SHEAF_CUDA_LIB: libcuda.so.1, the driver's. Empty: it is looked for.
};
LibraryPaths NamedLibraries();  // Of this process's environment, read anew by each call.

}  // namespace sheaf
