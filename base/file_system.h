// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// What kind of file system a path lies on: whether locks and sockets work there, and whether what
// is synced there outlives the machine's power.
#pragma once

#include <cstdint>
#include <string>

namespace sheaf {

enum class FileSystemKind : uint8_t {
  kLocal,    // Also what cannot be asked.
  kNetwork,  // NFS, SMB, Ceph and the like: locks and sockets work within one machine at most.
  kMemory,   // tmpfs, ramfs: a reboot empties it, and its files take memory.
};

// Of `path`, or of the nearest directory above it that exists. Any thread.
FileSystemKind KindOfFileSystem(const std::string& path);

}  // namespace sheaf
