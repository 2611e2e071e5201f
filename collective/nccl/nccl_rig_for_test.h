// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Which CUDA and which NCCL a test uses: the stand-in of tests/nccl, or what this machine has.
#pragma once

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sheaf::testing {

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Sets the two variables as long as it lives; "": unset.
class StandIn {
 public:
  explicit StandIn(const char* cuda = SHEAF_FAKE_GPU, const char* nccl = SHEAF_FAKE_GPU)
      : cuda_("SHEAF_CUDA_LIB", cuda), nccl_("SHEAF_NCCL_LIB", nccl) {}

 private:
  class Variable {
   public:
    Variable(const char* name, const char* value) : name_(name) {
      if (const char* before = getenv(name)) before_ = before;
      *value == 0 ? unsetenv(name) : setenv(name, value, 1);
    }
    ~Variable() { before_.has_value() ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

   private:
    const char* name_;
    std::optional<std::string> before_;
  };
  Variable cuda_;
  Variable nccl_;
};

inline std::filesystem::path MakeFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "sheaf-nccl-XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  return name;
}

// Where `./do test` puts NCCL's wheel.
inline std::vector<std::string> WheelFolders() {
  return std::vector<std::string>(1, SHEAF_NCCL_WHEEL "/nvidia/nccl/lib");
}

}  // namespace sheaf::testing
