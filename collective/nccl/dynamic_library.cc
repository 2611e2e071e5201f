// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sheaf {
namespace {

constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;

std::string LastError() {
  const char* error = dlerror();
  return error != nullptr ? error : "no reason given";
}

std::string PathOf(void* handle, const std::string& otherwise) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name == nullptr ||
      *map->l_name == 0) {
    return otherwise;
  }
  return map->l_name;
}

}  // namespace

absl::StatusOr<DynamicLibrary> DynamicLibrary::Find(const LibrarySearch& search) {
  if (!search.named.empty()) {
    const std::string path = absl::StrCat("'", search.named, "' (", search.variable, ")");
    if (access(search.named.c_str(), R_OK) != 0) {
      return absl::NotFoundError(absl::StrCat(
          "no ", search.what, ": ", path, " is no file that can be read: want the path of ",
          search.soname, ", or unset ", search.variable, " to have it looked for"));
    }
    void* handle = dlopen(search.named.c_str(), kFlags);
    if (handle == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("no ", search.what, ": ", path,
                                                        " cannot be loaded: ", LastError(),
                                                        "; want the path of ", search.soname));
    }
    return DynamicLibrary(handle, path);
  }
  if (void* handle = dlopen(search.soname.c_str(), kFlags | RTLD_NOLOAD); handle != nullptr) {
    return DynamicLibrary(handle, PathOf(handle, search.soname));
  }
  std::vector<std::string> broken;
  for (const std::string& folder : search.folders) {
    const std::string path = absl::StrCat(folder, "/", search.soname);
    if (access(path.c_str(), F_OK) != 0) continue;
    if (void* handle = dlopen(path.c_str(), kFlags); handle != nullptr) {
      return DynamicLibrary(handle, path);
    }
    broken.push_back(LastError());
  }
  if (void* handle = dlopen(search.soname.c_str(), kFlags); handle != nullptr) {
    return DynamicLibrary(handle, PathOf(handle, search.soname));
  }
  broken.push_back(LastError());
  const std::string text = absl::StrCat(
      "no ", search.what, ": ", search.soname, " is not in ", search.variable, ", nor in ",
      search.folders.empty()
          ? "folders that were named (there are none)"
          : absl::StrCat("the folders [", absl::StrJoin(search.folders, ", "), "]"),
      ", nor where the system looks (", absl::StrJoin(broken, "; "), "). ", search.remedy);
  // The last entry is the system's: with more there was a file that did not load.
  return broken.size() > 1 ? absl::FailedPreconditionError(text) : absl::NotFoundError(text);
}

absl::StatusOr<void*> DynamicLibrary::Find(const char* name, const std::string& want) const {
  dlerror();
  void* const symbol = dlsym(handle_, name);
  if (symbol == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " has no symbol ", name, ": want ", want));
  }
  return symbol;
}

}  // namespace sheaf
