// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// For tests: a directory of its own, with mode 0700, that goes with the object and all that lies in
// it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/check.h"

namespace sheaf {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "sheaf-test-XXXXXX").string();
    SHEAF_CHECK(mkdtemp(name.data()) != nullptr, "no directory can be made for temporary files");
    path_ = name;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  // The path of what lies there under this name, or may.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace sheaf
