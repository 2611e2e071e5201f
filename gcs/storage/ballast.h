// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Disk space held back in a file beside the database, so that on a full disk the log can still be
// finished, checkpointed and closed. Released when the disk is full, taken again when there is
// space.
#pragma once

#include <cstdint>
#include <string>

namespace sheaf {

class Ballast {
 public:
  // `path` becomes a file of `size_bytes` with all its blocks allocated; 0: no ballast.
  Ballast(std::string path, int64_t size_bytes) : path_(std::move(path)), size_bytes_(size_bytes) {}

  // Allocates the file, if twice its size is free; false: there is not so much space.
  bool Take();
  // Gives the blocks back to the file system; true: there were some.
  bool Release();
  // Gives back a part of it only; false: nothing is left.
  bool ReleaseSome(int64_t bytes);

 private:
  const std::string path_;
  const int64_t size_bytes_;
};

}  // namespace sheaf
