// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "base/text/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"

namespace sheaf {

std::optional<std::string> WholeFile(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::string bytes;
  char part[16 * 1024];
  for (;;) {
    const ssize_t size = read(file.get(), part, sizeof part);
    if (size == 0) return bytes;
    if (size > 0) {
      bytes.append(part, static_cast<size_t>(size));
    } else if (errno != EINTR) {
      return std::nullopt;
    }
  }
}

}  // namespace sheaf
