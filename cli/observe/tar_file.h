// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// An archive of small files, as tar has them (POSIX ustar).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sheaf::cli {

class TarFile {
 public:
  // `unix_s`: when its files were written.
  explicit TarFile(int64_t unix_s) : unix_s_(unix_s) {}
  // `name`: at most 100 bytes, of which those that are no letters, digits or "._-/" become '_'.
  void Add(std::string_view name, std::string_view bytes);
  // The whole archive.
  std::string Done() &&;

 private:
  const int64_t unix_s_;
  std::string bytes_;
};

}  // namespace sheaf::cli
