// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "object_store/server/spill_files.h"

#include <catch2/catch.hpp>

#include "object_store/server/store_parts_for_test.h"

namespace sheaf::store_parts_test {
namespace spill_files_test {

TEST_CASE("a file goes with the last object in it") {
  Parts parts;
  ObjectRecord one, two, never;
  const uint64_t file = parts.files.TakeNumber();
  parts.spill.files[file] = "bytes";
  one.disk.file = two.disk.file = file;
  parts.files.Add(file, 2);
  CHECK(parts.files.TakeNumber() != file);
  parts.files.Forget(never);
  parts.files.Forget(one);
  parts.files.Forget(one);  // Once each.
  parts.disk.RunAll();
  CHECK(parts.spill.files.contains(file));
  parts.files.Forget(two);
  CHECK(parts.files.size() == 0);
  CHECK(parts.spill.files.contains(file));  // Until the disk's executor comes to it.
  parts.disk.RunAll();
  CHECK_FALSE(parts.spill.files.contains(file));
}

}  // namespace spill_files_test
}  // namespace sheaf::store_parts_test
