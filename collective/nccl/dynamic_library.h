// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// A library that is found and loaded when it is first needed, so that Sheaf runs where it is
// missing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf {

// Where to look. What is found first counts:
//   1. `named`, which the user set in `variable`. If it is wrong, nothing else is tried.
//   2. The library of this soname that the process has loaded already (torch's, for example).
//   3. `folders`, in their order.
//   4. Where the system's loader looks.
struct LibrarySearch {
  std::string what;      // "NCCL", for messages.
  std::string soname;    // "libnccl.so.2"
  std::string variable;  // "SHEAF_NCCL_LIB"
  std::string named;
  std::vector<std::string> folders;
  std::string remedy;  // What to do when there is none; ends the message.
};

// A loaded library. It stays loaded: threads of its own may run in it. Thread-safe.
class DynamicLibrary {
 public:
  // kNotFound: there is none, or what `named` names does not exist.
  // kFailedPrecondition: there is one that cannot be loaded. Both say where it was looked for.
  static absl::StatusOr<DynamicLibrary> Find(const LibrarySearch& search);

  // Sets `function` to the function `name`. kFailedPrecondition: the library has none; the message
  // names both, and `want` ("NCCL 2.18 or later").
  template <class Function>
  absl::Status Load(const char* name, const std::string& want, Function& function) const {
    absl::StatusOr<void*> found = Find(name, want);
    if (!found.ok()) return found.status();
    function = reinterpret_cast<Function>(*found);
    return absl::OkStatus();
  }
  // The file, and the variable that named it: "/usr/lib/libnccl.so.2", "'/x.so' (SHEAF_NCCL_LIB)".
  const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  absl::StatusOr<void*> Find(const char* name, const std::string& want) const;

  void* handle_;
  std::string path_;
};

}  // namespace sheaf
