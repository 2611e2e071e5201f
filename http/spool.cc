// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
#include "http/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace sheaf::http {

std::shared_ptr<const TemporaryFile> Spool::Begin(const std::string& directory) {
  if (directory.empty()) return nullptr;
  std::string path = directory + "/body-XXXXXX";
  fd_.Reset(mkostemp(path.data(), O_CLOEXEC));
  return fd_.valid() ? std::make_shared<const TemporaryFile>(std::move(path)) : nullptr;
}

bool Spool::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace sheaf::http
