// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/whole_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

namespace sheaf {
namespace {

TEST_CASE("a file is read whole, and what cannot be read is not there") {
  const std::string path =
      std::filesystem::temp_directory_path() / ("whole_file." + std::to_string(getpid()));
  const std::string bytes(GENERATE(0, 1, 16 * 1024, 40'001), 'x');
  std::ofstream(path, std::ios::binary) << bytes;
  CHECK(WholeFile(path) == bytes);
  std::filesystem::remove(path);
  CHECK_FALSE(WholeFile(path).has_value());
  CHECK(errno == ENOENT);
  CHECK_FALSE(WholeFile("/proc/self").has_value());  // A stream throws here.
  CHECK(errno == EISDIR);
  CHECK_FALSE(WholeFile("/proc/self/stat")->empty());
}

}  // namespace
}  // namespace sheaf
