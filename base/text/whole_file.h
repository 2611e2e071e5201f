// Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
// Reads files whole. Streams are not fit for it: an istreambuf_iterator throws where a read fails,
// as one below /proc does when its process ends meanwhile, and one of a directory always.
#pragma once

#include <optional>
#include <string>

namespace sheaf {

// Its bytes; nullopt: it cannot be opened or read, and errno says why. Any thread.
std::optional<std::string> WholeFile(const std::string& path);

}  // namespace sheaf
