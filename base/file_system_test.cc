// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/file_system.h"

#include <catch2/catch.hpp>

namespace sheaf {

TEST_CASE("what lies in memory is known for it, also before it is made") {
  // Linux has both everywhere: POSIX shared memory needs the first.
  CHECK(KindOfFileSystem("/dev/shm") == FileSystemKind::kMemory);
  CHECK(KindOfFileSystem("/dev/shm/not/there/yet") == FileSystemKind::kMemory);
  CHECK(KindOfFileSystem("/proc") == FileSystemKind::kLocal);
  CHECK(KindOfFileSystem("/no/such/directory") == KindOfFileSystem("/"));
}

}  // namespace sheaf
