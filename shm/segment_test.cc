// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "shm/segment.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>

namespace sheaf {

SCENARIO("two mappings of a segment show the same bytes, a read-only one too") {
  UniqueFd fd = MakeSegment("test", 2 * kPageBytes).value();
  Mapping writer = Mapping::Map(fd.get(), 0, 2 * kPageBytes, Access::kReadWrite).value();
  Mapping reader = Mapping::Map(fd.get(), kPageBytes, kPageBytes, Access::kReadOnly).value();
  writer.data()[kPageBytes + 3] = std::byte{42};
  CHECK(reader.data()[3] == std::byte{42});
  CHECK(reader.size() == kPageBytes);
}

SCENARIO("a range outside the segment is refused, not a later SIGBUS") {
  UniqueFd fd = MakeSegment("test", kPageBytes).value();
  CHECK_FALSE(Mapping::Map(fd.get(), 0, 2 * kPageBytes, Access::kReadOnly).ok());
  CHECK(CheckSegment(fd.get(), kPageBytes).ok());
  CHECK_FALSE(CheckSegment(fd.get(), kPageBytes + 1).ok());
  CHECK(ftruncate(fd.get(), 0) != 0);
}

SCENARIO("a descriptor that its maker can still truncate is refused") {
  UniqueFd fd(memfd_create("unsealed", MFD_CLOEXEC));
  REQUIRE(ftruncate(fd.get(), kPageBytes) == 0);
  CHECK_FALSE(CheckSegment(fd.get(), kPageBytes).ok());
}

}  // namespace sheaf
