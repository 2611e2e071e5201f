// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/file_system.h"

#include <sys/statfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

namespace sheaf {

FileSystemKind KindOfFileSystem(const std::string& path) {
  constexpr std::array<uint32_t, 10> kNetwork = {0x6969 /* NFS */,      0xff534d42 /* CIFS */,
                                                 0xfe534d42 /* SMB2 */, 0x517b /* SMB */,
                                                 0x00c36400 /* Ceph */, 0x0bd00bd0 /* Lustre */,
                                                 0x47504653 /* GPFS */, 0x19830326 /* BeeGFS */,
                                                 0x5346414f /* AFS */,  0x73757245 /* Coda */};
  constexpr std::array<uint32_t, 2> kMemory = {0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */};
  std::filesystem::path place = path;
  struct statfs info;
  while (statfs(place.c_str(), &info) != 0) {
    if (errno != ENOENT || !place.has_relative_path()) return FileSystemKind::kLocal;
    place = place.has_parent_path() ? place.parent_path() : ".";
  }
  const auto is_one_of = [&info](const auto& magics) {
    return std::find(magics.begin(), magics.end(), static_cast<uint32_t>(info.f_type)) !=
           magics.end();
  };
  if (is_one_of(kNetwork)) return FileSystemKind::kNetwork;
  return is_one_of(kMemory) ? FileSystemKind::kMemory : FileSystemKind::kLocal;
}

}  // namespace sheaf
